"""Which documents are served, and why others are not."""

from __future__ import annotations

import copy
import json
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from runtime_core.adapters.openapi_document import DocumentFault
from runtime_core.adapters.openapi_plan import plan_of
from runtime_core.adapters.openapi_request import RequestFault, build
from runtime_core.manifest import parse_manifest
from tests.runtime_core.adapters.calling import document, operation, parameter
from tests.runtime_core.adapters.planning import HOST, manifest, refused, request, unserved

if TYPE_CHECKING:
    from collections.abc import Iterator


class TestDocuments:
    def test_as_text(self) -> None:
        """A document may stand there as its JSON text."""
        read = manifest(json.dumps(document(f"{HOST}/", operation())))
        assert build(plan_of(read, read.verbs["tools.run"]), {}).url == f"{HOST}/things"

    @pytest.mark.parametrize(
        ("found", "reason"),
        [
            ({"openapi": "2.0"}, "/openapi: must be a version of OpenAPI 3.0 or 3.1"),
            ({"openapi": 3.1}, "/openapi: must be a version of OpenAPI 3.0 or 3.1"),
            ({"openapi": "3.2.0"}, "/openapi: must be a version of OpenAPI 3.0 or 3.1"),
            ({"swagger": "2.0"}, "/openapi: must be a version of OpenAPI 3.0 or 3.1"),
            ('{"a": 1, "a": 1}', 'document /a (line 1, column 10): the key "a" stands twice'),
            ("openapi: 3.1.0", 'document (line 1, column 1): "o" is not expected'),
            ({"openapi": "3.1.0", "paths": {}}, 'operation "act": no such one'),
            ({"openapi": "3.1.0", "paths": []}, 'operation "act": no such one'),
        ],
    )
    def test_what_is_no_document(self, found: Any, reason: str) -> None:
        """The reason names the place; `pack lint` shows it before anybody runs into it."""
        assert unserved(found) == reason

    @pytest.mark.parametrize(
        "url",
        [
            None,
            "/v1",
            "v1",
            "ftp://api.test",
            "file:///etc/passwd",
            "https://",
            "https://user:pass@api.test",
            "https://api.test@evil.test",
            "https://api.test:99999",
            "https://api.test:0",
            "https://api.test/v1?x=1",
            "https://api.test/v1#f",
            "https://api.test/../v1",
            "https://api.test\\@evil.test",
            "https://api.test/a b",
            "https://{host}/v1",
            "https://ä.test",
        ],
    )
    def test_servers_that_are_not_called(self, url: str | None) -> None:
        """A server is an absolute http or https address of a host and a plain path; nothing else is guessed."""
        found = document("x", operation())
        found["servers"] = [] if url is None else [{"url": url}]
        assert "server" in unserved(found)

    def test_the_closest_server(self) -> None:
        """The operation's servers come before its path's, and these before the document's; variables by default."""
        paths = operation()
        assert request(paths, {}).url == "https://api.test/things"
        paths["/things"]["servers"] = [
            {"url": "https://{where}.test/{v}/", "variables": {"where": {"default": "b"}, "v": {"default": "v2"}}}
        ]
        assert request(paths, {}).url == "https://b.test/v2/things"
        paths["/things"]["get"]["servers"] = [{"url": "http://[::1]:8080"}, {"url": "https://c.test"}]
        assert request(paths, {}).url == "http://[::1]:8080/things"

    @pytest.mark.parametrize(
        ("paths", "reason"),
        [
            ({**operation(), **operation(path="/other")}, "not the only one"),
            (operation(path="/t/{id}"), "name different things"),
            (operation(parameters=[parameter("id", "path")]), "name different things"),
            (operation(path="things"), "no plain template"),
            (operation(path="/a?x=1"), "no plain template"),
            (operation(path="/a#b"), "no plain template"),
            (operation(path="/a/../b"), "no plain template"),
            (operation(parameters=[parameter("q", "query", style="deepObject", required=True)]), "style"),
            (operation(path="/t/{id}", parameters=[parameter("id", "path", style="matrix")]), "style"),
            (operation(parameters=[parameter("q", "body", required=True)]), "style"),
            (operation(parameters=[parameter("c", "cookie", required=True)]), "cookies are not sent"),
            (operation(parameters=[parameter("Host", "header", required=True)]), "no header that an arg may set"),
            (
                operation(parameters=[parameter("Content-Length", "header", required=True)]),
                "no header that an arg may set",
            ),
            (operation(parameters=[parameter("a b", "header", required=True)]), "no header that an arg may set"),
            (
                operation(parameters=[parameter("q", "query", content={"text/xml": {}}, required=True)]),
                "its content must be",
            ),
            (operation(parameters=[{"in": "query"}]), "without name or place"),
            (operation(parameters=[{"$ref": "https://evil.test/p.json"}]), "leads out of the document"),
            (operation(parameters=[{"$ref": "#/components/parameters/Self"}]), "run in a circle"),
            (operation(parameters=[parameter("q", "query", {"$ref": "https://evil.test/s"})]), "leads out"),
            (operation(parameters=[parameter("q", "query", {"$ref": "#/nowhere"})]), "leads nowhere"),
            (operation(parameters=[parameter("q", "query", {"type": "strange"})]), "no JSON Schema"),
            (operation("post", requestBody={"content": {"application/xml": {}}}), "the request body must be"),
        ],
    )
    def test_operations_that_are_not_served(self, paths: dict[str, Any], reason: str) -> None:
        """What cannot be sent as the document says is told, and never sent half."""
        circle = {"Self": {"$ref": "#/components/parameters/Self"}}
        assert reason in unserved(document(HOST, paths, components={"parameters": circle}))

    def test_what_means_nothing(self) -> None:
        """Headers that the specification ignores, and optional parameters that are not served, are no args."""
        declared = [
            parameter("Accept", "header", required=True),
            parameter("c", "cookie"),
            parameter("Range", "header"),
            parameter("deep", "query", style="deepObject"),
        ]
        assert request(operation(parameters=declared), {}).headers == {}
        assert refused(operation(parameters=declared), {"deep": "x"}) == "/deep: the operation has no such parameter"
        assert (
            refused(operation(parameters=declared), {"Accept": "x"}) == "/Accept: the operation has no such parameter"
        )


ODD: list[Any] = [
    *(None, True, False, 0, -1, 1.5, "", "x", "..", "type", "{id}", "/a/{id}", "http://h", "#/", "#", "https://x/y"),
    *([], [{}], ["a", None], {}, {"$ref": "#/"}, {"$ref": "#"}, {"a": {"$ref": "#/components/schemas/NewNote"}}),
    {"type": "object", "properties": {"x": {"readOnly": True}}, "required": ["x", 1]},
]
WORDS = ["$ref", "schema", "style", "explode", "content", "servers", "required", "allOf", "nullable", "items", "in"]


def places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every part of a value but itself."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield (*way, key)
        yield from places(part, (*way, key))


def broken(found: dict[str, Any], seed: int) -> None:
    """Break a document in up to four places."""
    chance = random.Random(seed)
    found["openapi"] = chance.choice(["3.0.3", "3.1.0"])
    for _ in range(chance.randint(1, 4)):
        *way, last = chance.choice(list(places(found)))
        part: Any = found
        for key in way:
            part = part[key]
        if isinstance(part, dict) and chance.random() < 0.4:
            part.pop(last)
            last = chance.choice(WORDS)
        part[last] = copy.deepcopy(chance.choice(ODD))


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_broken_documents(first: int) -> None:
    """Whatever stands in a document: it is called as one address, or there is a reason why not."""
    whole = json.loads((Path(__file__).parents[3] / "examples/packs/notes/surface.json").read_text())
    for seed in range(first, first + 50):
        surface = copy.deepcopy(whole)
        broken(surface["adapter"]["document"], seed)
        read = parse_manifest(json.dumps(surface).encode())
        faults = len(read.warnings)
        for verb in read.verbs.values():
            try:
                got = build(plan_of(read, verb), {"id": "a/b", "title": "x", "limit": 1})
            except DocumentFault:
                faults -= 1
            except RequestFault as fault:
                assert str(fault).startswith(("/", ": "))
            else:
                assert re.fullmatch(r"https?://[!-~]+", got.url), seed
        assert faults in {0, 1 - len(read.verbs)}, "one warning a command, or one for the document"
