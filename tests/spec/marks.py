"""The marks of the tests, read from their source: which test holds which clause, which is which handed case.

Source is read, not collected: the whole tree takes a second, and a test that cannot be collected here is counted too.
Marks are seen on a function, on its class, in a module's `pytestmark` and on a parameter (`pytest.param(…, marks=…)`).
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TESTS = "test_*.py"


class MarkedTest(NamedTuple):
    """One test function that carries a mark."""

    file: str
    """Relative to the root, with slashes."""
    line: int
    name: str
    behaviour: str
    """The first line of its docstring."""


def marked(root: Path, mark: str) -> dict[str, list[MarkedTest]]:
    """Return the tests beneath `root/tests` by the value of their marks of that name, by file and line.

    Raises ValueError for a mark whose value is not written out: a reader of the source could not see it either.
    """
    found: dict[str, list[MarkedTest]] = {}
    for path in sorted((root / "tests").rglob(TESTS)):
        source = path.read_text()
        if f"mark.{mark}(" not in source:
            continue
        file = path.relative_to(root).as_posix()
        for value, test in _of_module(ast.parse(source, file), file, mark):
            tests = found.setdefault(value, [])
            if test not in tests:
                tests.append(test)
    return found


def _of_module(module: ast.Module, file: str, mark: str) -> Iterator[tuple[str, MarkedTest]]:
    yield from _of_body(module.body, _pytestmark(module.body, file, mark), file, mark)


def _of_body(
    body: list[ast.stmt], inherited: list[str], file: str, mark: str, within: str = ""
) -> Iterator[tuple[str, MarkedTest]]:
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            values = [*inherited, *_values(node.decorator_list, file, mark), *_pytestmark(node.body, file, mark)]
            yield from _of_body(node.body, values, file, mark, f"{node.name}::")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            behaviour = (ast.get_docstring(node) or "").partition("\n")[0]
            test = MarkedTest(file, node.lineno, within + node.name, behaviour)
            for value in [*inherited, *_values(node.decorator_list, file, mark)]:
                yield value, test


def _pytestmark(body: list[ast.stmt], file: str, mark: str) -> list[str]:
    assigned = (node for node in body if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name))
    return [
        value
        for node in assigned
        if isinstance(node.targets[0], ast.Name) and node.targets[0].id == "pytestmark"
        for value in _values([node.value], file, mark)
    ]


def _values(expressions: list[ast.expr], file: str, mark: str) -> list[str]:
    """Return the values of every `pytest.mark.MARK(…)` anywhere in the expressions, those of parameters included."""
    calls = (node for expression in expressions for node in ast.walk(expression) if isinstance(node, ast.Call))
    values = []
    for call in calls:
        if isinstance(call.func, ast.Attribute) and ast.unparse(call.func) == f"pytest.mark.{mark}":
            value = call.args[0] if call.args else None
            if not (isinstance(value, ast.Constant) and isinstance(value.value, str)):
                raise ValueError(f"{file}:{call.lineno}: write the value of {mark}() out, so that it can be read here")
            values.append(value.value)
    return values
