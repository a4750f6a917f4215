from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from sinks.line import json_line
from sinks.memory import Memory
from sinks.protocol import Delivered, Rejected
from sinks.registry import BUILT_IN, Registry
from tests.sinks.deliveries import delivery

PAGE = (Path(__file__).parents[2] / "docs" / "sinks.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def ran(source: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "docs"}
    exec(compile(source, "docs", "exec", dont_inherit=True), names)  # noqa: S102 - the page is ours, and it has to run
    return names


def test_the_plugin_of_the_page_is_a_sink(capsys: pytest.CaptureFixture[str]):
    """The class in docs/sinks.md registers, builds and delivers."""
    plugin = next(block for block in blocks("python") if "class Pager(" in block)
    registry = Registry()
    registry.register(ran(plugin)["Pager"])
    sink = registry.build("pager", "p", {"number": "+1"})
    sink.open()
    outcomes = sink.deliver([delivery(1), delivery(2, subject="x" * 101)])
    sink.close()
    assert outcomes == [Delivered(receipt="paged"), Rejected("a page has 100 characters")]
    assert capsys.readouterr().out == f"+1 {delivery(1).id} main\n"


def test_the_recorder_of_the_page_works():
    """The lines about the memory sink run as they stand."""
    recorded = next(block for block in blocks("python") if "Memory.of" in block)
    ran(recorded)
    assert Memory.of("my-sink").outcomes == []
    Memory.forget()


def test_the_line_of_the_page_has_the_names_of_a_line():
    """The line shown has the names of a real one, in their order."""
    (shown,) = blocks("json")
    assert list(json.loads(shown)) == list(json.loads(json_line(delivery())))


@pytest.mark.parametrize("kind", Registry().kinds())
def test_every_built_in_kind_is_on_the_page(kind: str):
    """Each kind has its part."""
    assert f"\n## {kind}\n" in PAGE


@pytest.mark.parametrize(
    ("kind", "option"), [(sink.kind, option) for sink in BUILT_IN for option in sink.Options.model_fields]
)
def test_every_option_is_on_the_page(kind: str, option: str):
    """Each option of each kind has its line, in the part of its kind."""
    part = PAGE.partition(f"\n## {kind}\n")[2].partition("\n## ")[0]
    assert f"\n| `{option}` |" in part
