"""docs/scenarios.md teaches what is so: its examples are files that hold, its tables name everything there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from runtime_core.errors import INTAKE_WORDS
from sense_worker.cli import main
from sense_worker.scenario.model import (
    ActivationRow,
    Case,
    Exec,
    GrantRow,
    PackSource,
    PrincipalRow,
    RouteRow,
    Scenario,
    Sense,
    SessionRow,
    Step,
)

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs/scenarios.md").read_text()
FILES = sorted((ROOT / "examples/scenarios").iterdir())


def section(title):
    """Return the text from one heading to the next of its kind."""
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def named(text):
    """Return every name between backticks."""
    return {name for code in re.findall(r"`([^`]+)`", text) for name in re.findall(r"\w+", code)}


def first_cells(text):
    """Return the names in the first column of the tables."""
    return named(" ".join(line.split("|")[1] for line in text.splitlines() if line.startswith("| `")))


def test_the_examples_of_the_document_are_the_files():
    """Each block under a heading that names a file is that file, and no file is left out."""
    blocks = re.findall(r"### [^\n]*`(examples/scenarios/\S+)`\n.*?```yaml\n(.*?)```", TEXT, flags=re.DOTALL)
    assert [(name, (ROOT / name).read_text()) for name, _ in blocks] == blocks
    assert sorted(ROOT / name for name, _ in blocks) == FILES


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_example_holds(path, monkeypatch, capsys):
    """As a reader types it, in the checkout."""
    monkeypatch.chdir(ROOT)
    assert main.run(["check", str(path.relative_to(ROOT))]) == 0
    assert capsys.readouterr().err == ""


def test_the_output_that_is_shown_is_the_output(monkeypatch, tmp_path, capsys):
    """Of the first example as it stands, and with its grant taken away."""
    shown = [text for language, text in re.findall(r"```(\w*)\n(.*?)```", TEXT, flags=re.DOTALL) if not language]
    monkeypatch.chdir(ROOT)
    main.run(["check", "examples/scenarios/first.yaml"])
    assert capsys.readouterr().out == shown[0]

    text = (ROOT / "examples/scenarios/first.yaml").read_text().replace("../packs", str(ROOT / "examples/packs"))
    without, removed = re.subn(r"grants:\n  - .*\n", "", text)
    (tmp_path / "first.yaml").write_text(without)
    assert (removed, main.run(["check", str(tmp_path / "first.yaml")])) == (1, 1)
    assert capsys.readouterr().out.startswith(shown[1])


def test_every_section_and_field_has_its_row():
    """What the models have, the tables name."""
    rows = section("The file")
    assert first_cells(rows) >= Scenario.model_fields.keys() - {"scenario"}
    for model in (PackSource, PrincipalRow, SessionRow, GrantRow, ActivationRow, RouteRow):
        assert named(rows) >= model.model_fields.keys(), model
    assert first_cells(rows) >= {"inbox", "workspace", "own", "tenant", "project"}


def test_every_case_and_step_has_its_row():
    """And each of their fields, and each word of a refusal at the door but one: no case crashes a worker."""
    cases = section("Cases")
    kinds = {name for kind in Case.__subclasses__() for name in kind.model_fields} - {"name", "expect"}
    assert first_cells(cases) >= kinds - {"step"}
    assert named(cases) >= {*Sense.model_fields, *Exec.model_fields, *INTAKE_WORDS} - {"crashed"}
    assert first_cells(section("Steps")) == Step.model_fields.keys()


def test_readme_leads_here_and_stays_one_page():
    """A newcomer finds it, in what fits on a page."""
    readme = (ROOT / "README.md").read_text()
    assert ("(docs/scenarios.md)" in readme, len(readme.splitlines()) <= 70) == (True, True)
