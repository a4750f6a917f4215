"""OpenAPI 3.0 and 3.1 documents: from an operationId to what a request of it is made of (DESIGN §5).

Only what the document itself says is read: references lead within it, and nothing is fetched.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from runtime_core import closed
from runtime_core.errors import DoorError
from runtime_core.exact_json import shown
from runtime_core.schema_size import resolved
from runtime_core.strict_json import parse_object

if TYPE_CHECKING:
    from collections.abc import Iterator

METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
DOCUMENT_LIMIT: Final = 1024 * 1024
"""Bytes of a document that is given as text: it stands in a file of at most this size."""
JSON_BODY: Final = "application/json"
FORM_BODY: Final = "application/x-www-form-urlencoded"

_VERSION = re.compile(r"3\.[01]\.[0-9]{1,4}(-[0-9A-Za-z.-]{1,64})?", re.ASCII)
_SERVER = re.compile(r"https?://[A-Za-z0-9._~-]+(?::[0-9]{1,5})?(?:/[!$%&'()*+,;=:@A-Za-z0-9._~/-]*)?", re.ASCII)
_SERVER_V6 = re.compile(r"https?://\[[0-9A-Fa-f:.]+\](?::[0-9]{1,5})?(?:/[!$%&'()*+,;=:@A-Za-z0-9._~/-]*)?", re.ASCII)
_TEMPLATE = re.compile(r"(?:/(?:[!$%&'()*+,;=:@A-Za-z0-9._~-]|\{[^{}/?#]+\})*)+", re.ASCII)
PLACEHOLDER: Final = re.compile(r"\{([^{}]+)\}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}", re.ASCII)
_IGNORED_HEADERS = frozenset({"accept", "content-type", "authorization"})
"""Header parameters of these names mean nothing (OpenAPI 3.0 and 3.1)."""
_FRAMING_HEADERS = frozenset(
    {
        *("connection", "content-length", "cookie", "expect", "host", "http2-settings", "keep-alive", "te", "trailer"),
        *("transfer-encoding", "upgrade", "accept-encoding", "content-encoding", "range"),
    }
)
"""They decide how a message is framed, routed or read; no arg does."""
_STYLES = {"path": ("simple",), "query": ("form",), "header": ("simple",)}
_REFERENCES_LIMIT = 16
"""References in a row: a longer chain is a circle."""


class DocumentFault(ValueError):
    """Why an operation of a document cannot be called, with its place."""


class Parameter(NamedTuple):
    """One declared parameter; `schema` is None where the document says nothing of its values."""

    name: str
    place: str
    """`path`, `query` or `header`."""
    required: bool
    explode: bool
    as_json: bool
    """Declared by `content`: the value is sent as its JSON text."""
    schema: Any


class Body(NamedTuple):
    """The request body."""

    media: str
    required: bool
    whole: bool
    """It is no object: the arg `body` is all of it."""
    properties: frozenset[str]
    schema: Any


class Operation(NamedTuple):
    """What a request is made of."""

    method: str
    server: str
    """Scheme, host, port and path before the operation's own, without a slash at its end."""
    path: str
    parameters: tuple[Parameter, ...]
    body: Body | None


class Document:
    """A parsed document. Made by `read_document`."""

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        version = root.get("openapi")
        if not isinstance(version, str) or _VERSION.fullmatch(version) is None:
            raise DocumentFault("/openapi: must be a version of OpenAPI 3.0 or 3.1")
        self.old_schemas = version.startswith("3.0.")
        """Schemas are those of OpenAPI 3.0, not JSON Schema 2020-12."""

    def operation(self, operation_id: str) -> Operation:
        """Return the operation of an id. Raises DocumentFault where there is none, several, or one not served here."""
        found = [one for one in self._operations() if one[3].get("operationId") == operation_id]
        if len(found) != 1:
            raise DocumentFault(f"operation {shown(operation_id)}: {'no such' if not found else 'not the only'} one")
        path, method, item, operation = found[0]
        place = f"operation {shown(operation_id)}"
        if _TEMPLATE.fullmatch(path) is None or any(part in {".", ".."} for part in path.split("/")):
            raise DocumentFault(f"{place}: its path is no plain template")
        parameters = self._parameters(place, item, operation)
        named = set(PLACEHOLDER.findall(path))
        if named != {one.name for one in parameters if one.place == "path"}:
            raise DocumentFault(f"{place}: its path and its path parameters name different things")
        return Operation(method.upper(), self._server(place, item, operation), path, parameters, self._body(operation))

    def _operations(self) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any]]]:
        """Yield path, method, path item and operation."""
        for path, item in _object(self.root.get("paths")).items():
            try:
                found = self._follow(item)
            except DocumentFault:
                continue  # what stands elsewhere is nothing of this document
            for method in METHODS:
                if isinstance(found.get(method), dict):
                    yield path, method, found, found[method]

    def _server(self, place: str, item: dict[str, Any], operation: dict[str, Any]) -> str:
        """Return the first server of the closest list."""
        servers = next((part["servers"] for part in (operation, item, self.root) if part.get("servers")), None)
        first = _object(servers[0]) if isinstance(servers, list) else {}
        url = first.get("url")
        if not isinstance(url, str):
            raise DocumentFault(f"{place}: the document names no server")
        for name, variable in _object(first.get("variables")).items():
            url = url.replace(f"{{{name}}}", str(_object(variable).get("default", "")))
        if not any(form.fullmatch(url) for form in (_SERVER, _SERVER_V6)) or not _has_port(url):
            raise DocumentFault(f"{place}: its server must be http:// or https:// with a host and a plain path")
        if any(part in {".", ".."} for part in url.split("/")):
            raise DocumentFault(f"{place}: the path of its server must be plain")
        return url.rstrip("/")

    def _parameters(self, place: str, item: dict[str, Any], operation: dict[str, Any]) -> tuple[Parameter, ...]:
        """Return the parameters, the operation's in place of its path's; optional ones may be left out."""
        found: dict[tuple[str, str], Parameter] = {}
        for given in (*_list(item.get("parameters")), *_list(operation.get("parameters"))):
            declared = self._follow(given)
            name, where = declared.get("name"), declared.get("in")
            if not isinstance(name, str) or not name or not isinstance(where, str):
                raise DocumentFault(f"{place}: a parameter without name or place")
            if where == "header" and name.lower() in _IGNORED_HEADERS:
                continue
            required = where == "path" or declared.get("required") is True
            try:
                found[name, where] = _parameter(f"{place}: parameter {shown(name)}", name, where, declared)
            except DocumentFault:
                found.pop((name, where), None)
                if required:
                    raise
        return tuple(found.values())

    def _body(self, operation: dict[str, Any]) -> Body | None:
        if "requestBody" not in operation:
            return None
        declared = self._follow(operation["requestBody"])
        content = _object(declared.get("content"))
        media = next((one for one in content if is_json(one)), FORM_BODY if FORM_BODY in content else None)
        if media is None:
            raise DocumentFault(f"the request body must be {JSON_BODY} or {FORM_BODY}")
        schema = _object(content[media]).get("schema")
        shape = self._follow(schema) if isinstance(schema, dict) else {}
        kinds = shape.get("type", "object")
        whole = media != FORM_BODY and "object" not in (kinds if isinstance(kinds, list) else [kinds])
        properties = frozenset(self._properties(shape))
        return Body(media, declared.get("required") is True, whole, properties, schema)

    def _properties(self, shape: dict[str, Any]) -> Iterator[str]:
        """Yield the names of the members that a schema declares, also by the parts of an `allOf`."""
        yield from _object(shape.get("properties"))
        for part in _list(shape.get("allOf")):
            yield from _object(self._follow(part).get("properties"))

    def _follow(self, part: Any) -> dict[str, Any]:
        """Return an object, or what its reference within the document names."""
        for _ in range(_REFERENCES_LIMIT):
            reference = _object(part).get("$ref")
            if not isinstance(reference, str):
                return _object(part)
            if not reference.startswith("#"):
                raise DocumentFault(f"reference {shown(reference)}: leads out of the document")
            part = resolved(self.root, reference[1:])
        raise DocumentFault("references run in a circle")


def _parameter(about: str, name: str, where: str, declared: dict[str, Any]) -> Parameter:
    """Return a declared parameter. Raises DocumentFault for one that is not served."""
    if where == "cookie":
        raise DocumentFault(f"{about}: cookies are not sent")
    style = declared.get("style", _STYLES.get(where, ("",))[0])
    if style not in _STYLES.get(where, ()):
        raise DocumentFault(f"{about}: style {closed.found(style)} in {shown(where)} is not served")
    if where == "header" and (_HEADER.fullmatch(name) is None or name.lower() in _FRAMING_HEADERS):
        raise DocumentFault(f"{about}: no header that an arg may set")
    content = _object(declared.get("content"))
    if content and list(content) != [JSON_BODY]:
        raise DocumentFault(f"{about}: its content must be {JSON_BODY}")
    schema = _object(content.get(JSON_BODY)).get("schema") if content else declared.get("schema")
    explode = declared.get("explode", where == "query") is True
    return Parameter(name, where, where == "path" or declared.get("required") is True, explode, bool(content), schema)


def read_document(source: dict[str, Any] | str) -> Document:
    """Return the document of `adapter.document`: the object itself, or its JSON text. Raises DocumentFault."""
    if isinstance(source, dict):
        return Document(source)
    try:
        return Document(parse_object(source.encode(), limit=DOCUMENT_LIMIT, what="document"))
    except DoorError as refused:
        raise DocumentFault(str(refused)) from None


def is_json(media: str) -> bool:
    """Tell whether a media type is JSON, by its name or its suffix."""
    kind = media.partition(";")[0].strip().lower()
    return kind == JSON_BODY or (kind.startswith("application/") and kind.endswith("+json"))


def _has_port(url: str) -> bool:
    try:
        return urlsplit(url).port != 0
    except ValueError:
        return False


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
