"""Schemas whose references multiply: what a validator would do for hours is refused when the pack is read."""

from __future__ import annotations

from typing import Any

import pytest

from runtime_core.schemas import SchemaFault, compile_schema


def doubled(levels: int, reference: str = "#/$defs/d{}", **more: str) -> dict[str, Any]:
    """Return a schema of so many definitions, each of which names the next one twice."""
    defs = {
        f"d{level}": {"$anchor": f"d{level}", "allOf": [{"$ref": reference.format(level + 1)}] * 2}
        for level in range(levels)
    }
    return {
        "$ref": reference.format(0),
        "$defs": {**defs, f"d{levels}": {"$anchor": f"d{levels}", "type": "object"}},
        **more,
    }


@pytest.mark.parametrize(
    "document",
    [
        doubled(40),
        doubled(40, "#d{}"),
        doubled(40, "x#/%24defs/d{}", **{"$id": "https://x.example/x"}),
        {"properties": {"a": {"items": doubled(40)["$defs"]["d0"]}}, "$defs": doubled(40)["$defs"]},
        {"properties": {"$defs": doubled(40)["$defs"]["d0"]}, "$defs": doubled(40)["$defs"]},
        {"not": {"$id": "https://x.example/y", **doubled(40)}},
        {"allOf": [{"$id": f"https://x.example/{at}", "$ref": "#"} for at in range(5000)]},
        {"allOf": [{"$anchor": "a", "$ref": "#a"} for at in range(5000)]},
    ],
)
def test_references_that_multiply_are_refused(document: dict[str, Any]) -> None:
    """A schema that would check one value a trillion times is refused before anybody waits for it."""
    with pytest.raises(SchemaFault, match="references make it more than 10000 parts larger"):
        compile_schema(document)


@pytest.mark.parametrize(
    "document",
    [
        doubled(8),
        {
            "$ref": "#/$defs/d0",
            "$defs": {f"d{at}": {"$ref": f"#/$defs/d{at + 1}"} for at in range(4000)} | {"d4000": {}},
        },
        {
            "properties": {f"p{at}": {"$ref": "#/$defs/text"} for at in range(2000)},
            "$defs": {"text": {"type": "string"}},
        },
        {"properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}},
        {"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#"}}]},
        {"properties": {f"p{at}": {"enum": [[at]]} for at in range(20_000)}},
    ],
)
def test_large_and_recursive_schemas_are_not(document: dict[str, Any]) -> None:
    """Size alone, long chains and recursion are fine: they end with the file or with the data."""
    assert (compile_schema(document).check({}) is None) is ("anyOf" not in document)
