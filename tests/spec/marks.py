"""The marks of the tests, read from their source: which test holds which clause, which is which handed case.

Source is read, not collected: the whole tree takes a second, and a test that cannot be collected here is counted too.
Marks are seen on a function, on its class, in a module's `pytestmark` and on a parameter (`pytest.param(…, marks=…)`),
also where the parameters stand in a list of the module that a decorator names.
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
        if f"mark.{mark}(" in source:
            file = path.relative_to(root).as_posix()
            for value, test in _Module(ast.parse(source, file), file, mark).marked():
                tests = found.setdefault(value, [])
                if test not in tests:
                    tests.append(test)
    return found


class _Module:
    def __init__(self, module: ast.Module, file: str, mark: str) -> None:
        self._body = module.body
        self._file = file
        self._mark = f"pytest.mark.{mark}"
        self._named: dict[str, ast.expr] = dict(_assigned(module.body))

    def marked(self) -> Iterator[tuple[str, MarkedTest]]:
        """Yield each value with each test that carries it."""
        yield from self._of(self._body, self._pytestmark(self._body))

    def _of(self, body: list[ast.stmt], inherited: list[str], within: str = "") -> Iterator[tuple[str, MarkedTest]]:
        for node in body:
            if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
                values = [*inherited, *self._values(node.decorator_list), *self._pytestmark(node.body)]
                yield from self._of(node.body, values, f"{node.name}::")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                behaviour = (ast.get_docstring(node) or "").partition("\n")[0]
                test = MarkedTest(self._file, node.lineno, within + node.name, behaviour)
                for value in [*inherited, *self._values(node.decorator_list)]:
                    yield value, test

    def _pytestmark(self, body: list[ast.stmt]) -> list[str]:
        return self._values([value for name, value in _assigned(body) if name == "pytestmark"])

    def _values(self, expressions: list[ast.expr]) -> list[str]:
        """Return the values of every `pytest.mark.MARK(…)` within the expressions and the module's names they use."""
        values: list[str] = []
        seen: set[str] = set()
        waiting = list(expressions)
        while waiting:
            for node in ast.walk(waiting.pop()):
                if isinstance(node, ast.Name) and node.id in self._named and node.id not in seen:
                    seen.add(node.id)
                    waiting.append(self._named[node.id])
                elif isinstance(node, ast.Call) and ast.unparse(node.func) == self._mark:
                    values += self._written(node)
        return values

    def _written(self, call: ast.Call) -> list[str]:
        written = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        if written and len(written) == len(call.args):
            return written
        raise ValueError(
            f"{self._file}:{call.lineno}: write the value of {self._mark}() out, so that it can be read here"
        )


def _assigned(body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    """Yield name and value of each plain assignment of a module or class."""
    for node in body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            if isinstance(target, ast.Name) and isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                yield target.id, node.value
