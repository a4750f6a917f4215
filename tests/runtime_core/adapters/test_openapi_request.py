"""From documents and args to requests: what the document says, and nothing that it does not say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.runtime_core.adapters.calling import json_body, operation, parameter
from tests.runtime_core.adapters.planning import BOTH, HOST, refused, request


class TestPlaces:
    @pytest.mark.spec("1.5.adapters")
    @BOTH
    def test_query_and_header(self, version: str) -> None:
        """Values go where the document has their names, encoded whole."""
        declared = [
            parameter("q", "query", {"type": "string"}),
            parameter("tag", "query", {"type": "array"}),
            parameter("ids", "query", explode=False),
            parameter("filter", "query", content={"application/json": {}}),
            parameter("X-Trace", "header"),
            parameter("odd&name", "query"),
        ]
        args = {
            "q": "a&b=c #?+ü",
            "tag": ["x y", True, 7],
            "ids": ["1,2", 3],
            "filter": {"a": ["b", None]},
            "X-Trace": ["t1", 2],
            "odd&name": 1.5,
        }
        got = request(operation(parameters=declared), args, version)
        assert got.url == (
            "https://api.test/things?q=a%26b%3Dc%20%23%3F%2B%C3%BC&tag=x%20y&tag=true&tag=7&ids=1%2C2,3"
            "&filter=%7B%22a%22%3A%5B%22b%22%2Cnull%5D%7D&odd%26name=1.5"
        )
        assert (got.method, got.headers, got.body) == ("GET", {"X-Trace": "t1,2"}, None)

    def test_what_is_absent_is_left_out(self) -> None:
        """An arg that is not there adds nothing; an empty list neither."""
        declared = [parameter("q", "query"), parameter("tag", "query"), parameter("ids", "query", explode=False)]
        assert request(operation(parameters=declared), {"tag": [], "ids": []}).url == "https://api.test/things"

    def test_the_operation_over_its_path(self) -> None:
        """A parameter of the operation stands in place of the same one of its path."""
        paths = operation(parameters=[parameter("q", "query", {"type": "integer"})])
        paths["/things"]["parameters"] = [parameter("q", "query", {"type": "string"}), parameter("p", "query")]
        assert request(paths, {"q": 1, "p": 2}).url.endswith("?q=1&p=2")
        assert refused(paths, {"q": "x"}).startswith("/q: ")

    def test_references_within_the_document(self) -> None:
        """Path items, parameters, bodies and schemas may be named by reference."""
        more = {
            "components": {
                "parameters": {"Id": parameter("id", "path", {"$ref": "#/components/schemas/Id"})},
                "requestBodies": {"New": json_body({"$ref": "#/components/schemas/New"}, required=True)},
                "schemas": {
                    "Id": {"type": "string", "minLength": 2},
                    "New": {"properties": {"next": {"$ref": "#/components/schemas/New"}, "n": {"type": "integer"}}},
                },
                "pathItems": {
                    "Thing": {
                        "parameters": [{"$ref": "#/components/parameters/Id"}],
                        "put": {"operationId": "act", "requestBody": {"$ref": "#/components/requestBodies/New"}},
                    }
                },
            }
        }
        paths = {"/things/{id}": {"$ref": "#/components/pathItems/Thing"}}
        got = request(paths, {"id": "ab", "next": {"next": {"n": 1}}}, **more)
        assert (got.method, got.url, got.body) == ("PUT", f"{HOST}/things/ab", b'{"next":{"next":{"n":1}}}')
        assert refused(paths, {"id": "a"}, **more).startswith("/id: ")
        assert refused(paths, {"id": "ab", "next": {"next": {"n": "x"}}}, **more).startswith("/next/next/n: ")

    @pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "ключ", " a", "a ", "", "a\0", "\t"], ids=repr)
    def test_header_values(self, value: str) -> None:
        """No value of a header ends it or begins another."""
        paths = operation(parameters=[parameter("X-A", "header")])
        assert refused(paths, {"X-A": value}) == "/X-A: must be printable ASCII in a header"

    @pytest.mark.parametrize("place", ["query", "header"])
    def test_what_is_required(self, place: str) -> None:
        """Nothing is sent without a required value."""
        paths = operation(parameters=[parameter("q", place, required=True)])
        assert refused(paths, {}) == "/q: is missing, and the operation needs it"

    def test_an_arg_that_belongs_nowhere(self) -> None:
        """An arg that the operation does not know is refused instead of being dropped."""
        assert refused(operation(), {"x": 1}) == "/x: the operation has no such parameter"

    @pytest.mark.parametrize("value", [None, {"a": 1}, [[1]], [None]], ids=repr)
    def test_values_without_text(self, value: Any) -> None:
        """Null, objects and lists of lists have no text in an address."""
        assert refused(operation(parameters=[parameter("q", "query")]), {"q": value}).startswith("/q: must be text")

    def test_half_a_character(self) -> None:
        """A lone surrogate cannot be sent anywhere."""
        assert refused(operation(parameters=[parameter("q", "query")]), {"q": "\ud800"}) == "/q: holds half a character"
        paths = operation("post", requestBody=json_body({}))
        assert refused(paths, {"q": "\ud800"}) == "the body holds half a character"


class TestBodies:
    @BOTH
    def test_what_no_parameter_names(self, version: str) -> None:
        """The other args are the members of a JSON body; one that both name goes to both."""
        body = json_body({"type": "object", "properties": {"id": {"type": "string"}}})
        paths = operation(
            "put", "/t/{id}", parameters=[parameter("id", "path"), parameter("q", "query")], requestBody=body
        )
        got = request(paths, {"id": "a", "q": 1, "text": "ä", "n": None}, version)
        assert (got.url, got.body) == (f"{HOST}/t/a?q=1", '{"id":"a","text":"ä","n":null}'.encode())
        assert got.headers == {"Content-Type": "application/json"}

    def test_by_the_parts_of_all_of(self) -> None:
        """Members that a part of an allOf declares are known too."""
        schema = {"allOf": [{"type": "object", "properties": {"id": {}}}, {"required": ["id"]}]}
        paths = operation("put", "/t/{id}", parameters=[parameter("id", "path")], requestBody=json_body(schema))
        assert request(paths, {"id": "a"}).body == b'{"id":"a"}'

    @pytest.mark.parametrize("kind", ["array", "string", ["array", "null"]])
    def test_a_body_that_is_no_object(self, kind: Any) -> None:
        """It is the arg `body`, and all of it."""
        paths = operation("post", requestBody=json_body({"type": kind}, required=True))
        value: Any = "x" if kind == "string" else [1, 2]
        assert request(paths, {"body": value}).body == json.dumps(value, separators=(",", ":")).encode()
        assert refused(paths, {}) == "/body: is missing, and the operation needs it"
        assert refused(paths, {"body": value, "other": 1}) == "/other: the operation has no such parameter"

    def test_optional_and_required(self) -> None:
        """Without members an optional body is not sent, a required one is an empty object."""
        assert request(operation("post", requestBody=json_body({})), {}).body is None
        assert request(operation("post", requestBody=json_body({}, required=True)), {}).body == b"{}"

    def test_a_form(self) -> None:
        """A form is written as one, a list as several fields of a name."""
        body = {"content": {"application/x-www-form-urlencoded": {"schema": {"type": "object"}}}}
        got = request(operation("post", requestBody=body), {"a b": "x&y=z", "tag": [1, True]})
        assert got.body == b"a%20b=x%26y%3Dz&tag=1&tag=true"
        assert got.headers == {"Content-Type": "application/x-www-form-urlencoded"}

    def test_a_media_type_with_a_suffix(self) -> None:
        """JSON by its suffix is sent under its own name."""
        body = {"content": {"text/csv": {}, "application/merge-patch+json": {}}}
        assert request(operation("patch", requestBody=body), {"a": 1}).headers == {
            "Content-Type": "application/merge-patch+json"
        }


class TestSchemas:
    """Values are checked by the document's own schemas, each version's by its own rules."""

    @pytest.mark.parametrize(
        ("version", "schema", "good", "bad"),
        [
            ("3.0.3", {"type": "string", "nullable": True, "enum": ["a", None]}, ["a", None], ["b", 1]),
            ("3.0.3", {"type": "string", "nullable": False}, ["a"], [None]),
            ("3.0.3", {"type": "integer", "minimum": 3, "exclusiveMinimum": True}, [4], [3, "4"]),
            ("3.0.3", {"type": "integer", "maximum": 3, "exclusiveMaximum": False}, [3], [4]),
            ("3.0.3", {"$ref": "#/components/schemas/A", "minLength": 9}, ["ab"], ["a"]),
            ("3.1.0", {"$ref": "#/components/schemas/A", "maxLength": 3}, ["ab"], ["a", "abcd"]),
            ("3.1.0", {"type": ["string", "null"]}, ["a", None], [1]),
            ("3.1.0", {"type": "integer", "exclusiveMinimum": 3}, [4], [3]),
            ("3.1.0", {"type": "array", "prefixItems": [{"const": 1}], "items": False}, [[1]], [[1, 2], [2]]),
            ("3.1.0", {"enum": [{"$ref": "#/nowhere"}]}, [{"$ref": "#/nowhere"}], [{}]),
            ("3.1.0", True, [1], []),
            ("3.1.0", False, [], [1]),
            (
                "3.0.3",
                {"type": "object", "required": ["id", "n"], "properties": {"id": {"readOnly": True}}},
                [{"n": 1}],
                [{}],
            ),
        ],
    )
    def test_both_dialects(self, version: str, schema: Any, good: list[Any], bad: list[Any]) -> None:
        """What the schema takes is sent, what it does not take is refused with its place."""
        paths = operation("post", requestBody=json_body({"type": "object", "properties": {"v": schema}}))
        more = {"components": {"schemas": {"A": {"type": "string", "minLength": 2}}}}
        for value in good:
            assert json.loads(request(paths, {"v": value}, version, **more).body) == {"v": value}
        for value in bad:
            assert refused(paths, {"v": value}, version, **more).startswith("/v")

    def test_a_reason_shows_no_value(self) -> None:
        """What a caller sent is not repeated: it may be logged."""
        paths = operation(parameters=[parameter("q", "query", {"type": "string", "maxLength": 3})])
        assert "canary" not in refused(paths, {"q": "canary-value"})
