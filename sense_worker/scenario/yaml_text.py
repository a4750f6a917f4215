"""YAML as scenario files are written in it: JSON's values with a kinder spelling, as strict as every other door.

PyYAML composes the nodes; the values are made here, because its own constructors follow YAML 1.1, where `no` is false,
`12:30` is 750, a moment is no text, and the second of two equal keys wins silently. Plain words and numbers mean what
both YAML 1.1 and 1.2 make of them; where the two differ (`no`, `010`, `0x1f`, `1_000`) it is text.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from runtime_core.exact_json import DEPTH_LIMIT, INT_MAX, INT_MIN

VALUES_LIMIT = 1_000_000
"""Values of one document, each use of an alias counted: nine lines of aliases can say a billion."""

_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)", re.ASCII)
_NUMBER = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_NO_NUMBER = re.compile(r"[-+]?\.inf|\.nan", re.IGNORECASE)
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_WORDS: dict[str, bool | None] = {"~": None, "": None}
for _word, _value in (("true", True), ("false", False), ("null", None)):
    _WORDS |= dict.fromkeys((_word, _word.title(), _word.upper()), _value)
_PLAIN, _TEXT, _NESTED = "plain", "text", "nested"
"""The tags of nodes that have none in the file. Compared by identity: `!<plain>` in a file is another text."""


_WAY_OUT = "write it as YAML: indent with spaces, close what is opened, put text with signs in quotes"


class _Composer(yaml.CSafeLoader):
    """Composes nodes and resolves nothing: what a plain scalar means is told here."""

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        """Return what an untagged node is; `implicit` tells first of a scalar whether it is plain."""
        del value
        if kind is not yaml.ScalarNode:
            return _NESTED
        return _PLAIN if implicit[0] else _TEXT


class YamlFault(ValueError):
    """Why a text is no YAML that is read here; `line` counts from 1."""

    def __init__(self, line: int, reason: str, way_out: str = "see docs/scenarios.md") -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason
        self.way_out = way_out


def parse_yaml(text: str) -> Any:
    """Return the value of one YAML document. Raises YamlFault with the line."""
    if text.startswith("\ufeff"):
        raise YamlFault(1, "begins with a byte-order mark; save it without one")
    try:
        node = yaml.compose(text, Loader=_Composer)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "is no YAML"
        raise YamlFault(1 if mark is None else mark.line + 1, problem, _WAY_OUT) from None
    except (yaml.YAMLError, ValueError) as error:
        raise YamlFault(1, " ".join(str(error).split()) or "is no YAML", _WAY_OUT) from None
    except RecursionError:
        raise YamlFault(1, f"nested more than {DEPTH_LIMIT} deep") from None
    return None if node is None else _Values().of(node, DEPTH_LIMIT)


class _Values:
    def __init__(self) -> None:
        self._count = 0
        self._sound: set[int] = set()
        """Nodes of text that were looked through: an alias names the node again, however long its text is."""

    def of(self, node: yaml.Node, levels: int) -> Any:
        """Return the value of a node; an alias is read again at each place that uses it."""
        self._count += 1
        if self._count > VALUES_LIMIT:
            raise _fault(node, f"over {VALUES_LIMIT} values; write fewer aliases")
        if node.tag is not _PLAIN and node.tag is not _TEXT and node.tag is not _NESTED:
            raise _fault(node, f"the tag {node.tag[:100]!r} is not read; write plain YAML")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if levels == 0:
            raise _fault(node, f"nested more than {DEPTH_LIMIT} deep")
        if isinstance(node, yaml.SequenceNode):
            return [self.of(item, levels - 1) for item in node.value]
        return self._mapping(node, levels - 1)

    def _mapping(self, node: Any, levels: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise _fault(key_node, "a key must be text")
            key = self._checked(key_node)
            if key in found:
                raise _fault(key_node, f"the key {key[:100]!r} stands twice")
            found[key] = self.of(value_node, levels)
        return found

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        text = self._checked(node)
        if node.tag is _TEXT:  # quoted, or a block
            return text
        if text in _WORDS:
            return _WORDS[text]
        if _INTEGER.fullmatch(text):
            # Longer texts cannot fit, and int() itself refuses those of more than 4,300 digits.
            value = int(text) if len(text) <= 20 else INT_MAX + 1  # noqa: PLR2004
            if not INT_MIN <= value <= INT_MAX:
                raise _fault(node, f"the integer {text[:40]} is outside 64 bit")
            return value
        if _NUMBER.fullmatch(text):
            number = float(text)
            if number in (float("inf"), float("-inf")):
                raise _fault(node, f"the number {text[:40]} overflows")
            return number
        if _NO_NUMBER.fullmatch(text):
            raise _fault(node, f"{text} is no number that is read; quote it if it is text")
        return text

    def _checked(self, node: yaml.ScalarNode) -> str:
        text: str = node.value
        if id(node) not in self._sound:
            if _NO_TEXT.search(text):
                raise _fault(node, "NUL or a lone surrogate in text")
            self._sound.add(id(node))
        return text


def _fault(node: yaml.Node, reason: str) -> YamlFault:
    return YamlFault(node.start_mark.line + 1, reason)
