"""What the documents say about commands and settings is so."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from sense_worker.cli import main
from sense_worker.settings import Settings

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = (
    "README.md",
    "docs/operate.md",
    "docs/inbox.md",
    "docs/sinks.md",
    "docs/routes.md",
    "docs/wire.md",
    "docs/scenarios.md",
    "docs/write-a-pack.md",
    "CONTRIBUTING.md",
)
KNOWN_SETTINGS = {f"SENSE_{field.upper()}" for field in Settings.model_fields if field != "home"}


def calls():
    """Every call of the command line in a shell block of a document."""
    for document in DOCUMENTS:
        for block in re.findall(r"```sh\n(.*?)```", (ROOT / document).read_text(), flags=re.DOTALL):
            for line in block.splitlines():
                _, found, arguments = line.partition("sense-worker ")
                if found and re.fullmatch(r"(\w+=\S+ )?", line.partition("sense-worker ")[0]):
                    yield pytest.param(shlex.split(arguments, comments=True), id=f"{document}: {arguments[:40]}")


@pytest.mark.parametrize("arguments", list(calls()))
def test_a_documented_call_is_one_that_the_parser_takes(arguments, monkeypatch):
    """Every `sense-worker …` in a shell block names a command, with arguments and options that it has."""
    entered = []

    def stub(group):
        for inner in group.commands.values():
            if hasattr(inner, "commands"):
                stub(inner)
            else:
                monkeypatch.setattr(inner, "callback", lambda **_given: entered.append(True))

    stub(main.command())

    main.command().main(args=arguments, prog_name="sense-worker", standalone_mode=False, obj=main.Invocation())

    assert entered == [True]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_documented_setting_exists(document):
    """Every SENSE_ name in a document is a setting, or belongs to the tests."""
    named = set(re.findall(r"\bSENSE_[A-Z_]+\b", (ROOT / document).read_text()))

    assert {name for name in named if not name.startswith("SENSE_TEST_")} <= KNOWN_SETTINGS


def test_documented_defaults_are_the_defaults():
    """The table of settings in the manual shows what the code has."""
    manual = (ROOT / "docs/operate.md").read_text()
    rows = re.findall(r"^\| `(SENSE_[A-Z_]+)` \| ([0-9,]+|true|false) \|", manual, re.MULTILINE)
    settings = Settings.load({"HCP_HOME": "/nonexistent"})

    def shown(value):
        if isinstance(value, tuple):
            return ",".join(f"{one:g}" for one in value)
        return str(value).lower() if isinstance(value, bool) else f"{value:g}"

    assert {name: shown(getattr(settings, name[6:].lower())) for name, _ in rows} == dict(rows)
    assert len(rows) >= 6


def test_links_between_documents_lead_somewhere():
    """Every relative link names a file that is there."""
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / document).read_text()):
            assert ((ROOT / document).parent / target).exists(), f"{document}: {target}"
