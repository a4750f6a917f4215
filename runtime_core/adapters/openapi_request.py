"""From valid args to one HTTP request: every value stays in the place that the document gives it (C31)."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from runtime_core.adapters.openapi_document import FORM_BODY, PLACEHOLDER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runtime_core.adapters.openapi_document import Body, Parameter
    from runtime_core.adapters.openapi_plan import Plan
    from runtime_core.schemas import Schema

WHOLE_BODY = "body"
"""The arg that is all of a request body which is no object."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_HEADER_VALUE = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_DOTS = frozenset({".", ".."})
_SCALARS = (str, bool, int, float)


class RequestFault(Exception):
    """Why args cannot become a request: `/NAME: REASON`, without the value."""


class Request(NamedTuple):
    """What is sent, whole."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes | None


def build(known: Plan, args: Mapping[str, Any]) -> Request:
    """Return the request for args, without any credential. Raises RequestFault.

    An arg goes wherever the operation declares its name; what no parameter names is a member of the body.
    """
    operation = known.operation
    query: list[str] = []
    headers: dict[str, str] = {}
    filled: dict[str, str] = {}
    for one in operation.parameters:
        if one.name not in args:
            if one.required:
                raise RequestFault(f"/{one.name}: is missing, and the operation needs it")
            continue
        value = args[one.name]
        _check(known.checks.get((one.name, one.place)), value, f"/{one.name}")
        if one.place == "path":
            filled[one.name] = _segment(one, value)
        elif one.place == "header":
            headers[one.name] = _header(one, value)
        else:
            query += _pairs(one, value)
    body = _body(known, args)
    if body is not None and operation.body is not None:
        headers["Content-Type"] = operation.body.media
    url = (
        operation.server
        + PLACEHOLDER.sub(lambda found: filled[found[1]], operation.path)
        + ("?" + "&".join(query) if query else "")
    )
    return Request(operation.method, url, headers, body)


def is_header_value(value: str) -> bool:
    """Tell whether a text is one header value: printable ASCII, no space at its ends."""
    return _HEADER_VALUE.fullmatch(value) is not None


def _check(schema: Schema | None, value: Any, place: str) -> None:
    reason = None if schema is None else schema.check(value)
    if reason is not None:
        inner, _, why = reason.partition(": ")
        raise RequestFault(f"{place}{'' if inner == '/' else inner}: {why}")


def _segment(one: Parameter, value: Any) -> str:
    """Return a value as a part of one segment; what a server may read as steps of a path is refused."""
    texts = [_json(value)] if one.as_json else _texts(one, value)
    for text in texts:
        if not text:
            raise RequestFault(f"/{one.name}: must not be empty in a path")
        if _CONTROL.search(text):
            raise RequestFault(f"/{one.name}: holds a control character")
        # Servers that decode %2F before they walk a path would follow these.
        if _DOTS.intersection(re.split(r"[/\\]", text)):
            raise RequestFault(f"/{one.name}: would lead to another path")
    if not texts:
        raise RequestFault(f"/{one.name}: must not be empty in a path")
    return ",".join(_quoted(text, one.name) for text in texts)


def _header(one: Parameter, value: Any) -> str:
    text = _json(value, ascii_only=True) if one.as_json else ",".join(_texts(one, value))
    if not is_header_value(text):
        raise RequestFault(f"/{one.name}: must be printable ASCII in a header")
    return text


def _pairs(one: Parameter, value: Any) -> list[str]:
    name = _quoted(one.name, one.name)
    if one.as_json:
        return [f"{name}={_quoted(_json(value), one.name)}"]
    texts = [_quoted(text, one.name) for text in _texts(one, value)]
    if one.explode or not texts:
        return [f"{name}={text}" for text in texts]
    return [f"{name}={','.join(texts)}"]


def _texts(one: Parameter, value: Any) -> list[str]:
    return [_text(item, one.name) for item in (value if isinstance(value, list) else [value])]


def _text(value: Any, name: str) -> str:
    """Return a scalar as text: text as it is, everything else as JSON writes it."""
    if not isinstance(value, _SCALARS):
        raise RequestFault(f"/{name}: must be text, a number, true, false, or a list of these")
    return value if isinstance(value, str) else json.dumps(value)


def _quoted(text: str, name: str) -> str:
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise RequestFault(f"/{name}: holds half a character") from None


def _json(value: Any, *, ascii_only: bool = False) -> str:
    return json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":"))


def _body(known: Plan, args: Mapping[str, Any]) -> bytes | None:
    body = known.operation.body
    members = _members(known, args)
    if body is None:
        return None
    if body.whole:
        if WHOLE_BODY not in members:
            if body.required:
                raise RequestFault(f"/{WHOLE_BODY}: is missing, and the operation needs it")
            return None
        _check(known.body_check, members[WHOLE_BODY], f"/{WHOLE_BODY}")
        return _encoded(_json(members[WHOLE_BODY]))
    if not members and not body.required:
        return None
    _check(known.body_check, members, "")
    if body.media != FORM_BODY:
        return _encoded(_json(members))
    pairs = [
        (name, item) for name, value in members.items() for item in (value if isinstance(value, list) else [value])
    ]
    return "&".join(f"{_quoted(name, name)}={_quoted(_text(item, name), name)}" for name, item in pairs).encode()


def _members(known: Plan, args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the args that belong to the body. Raises RequestFault for one that belongs nowhere."""
    body: Body | None = known.operation.body
    parameters = {one.name for one in known.operation.parameters}
    members = {}
    for name, value in args.items():
        taken = body is not None and (name == WHOLE_BODY if body.whole else True)
        if name not in parameters and not taken:
            raise RequestFault(f"/{name}: the operation has no such parameter")
        if taken and body is not None and (name not in parameters or name in body.properties):
            members[name] = value
    return members


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise RequestFault("the body holds half a character") from None
