"""A sink package of somebody else's: built, installed where nothing else of it is, tested there, and delivered to."""

from __future__ import annotations

import json
import runpy
import sqlite3
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from sense_worker.cli import main
from sense_worker.drain import Drain
from sense_worker.storage.engine import Database
from sinks.registry import Registry
from tests.intake_bench import IntakeBench
from tests.sinks.packages import EXAMPLE, environment, own_tests, run, unpacked, wheel
from tests.sinks.test_conformance import TESTS, found

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KINDS = """
import json
from sinks.registry import Registry
registry = Registry.load()
print(json.dumps({"kinds": registry.kinds(), "faults": [str(fault) for fault in registry.faults]}))
"""


def kinds(python: Path, folder: Path) -> dict[str, list[str]]:
    """Return the kinds that a process of that environment has."""
    found: dict[str, list[str]] = json.loads(run(python, "-c", KINDS, cwd=folder).stdout)
    return found


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What `sink new` writes."""
    monkeypatch.chdir(tmp_path)
    assert main.run(["sink", "new", "night_pager", "--path", "made"]) == 0
    return tmp_path / "made"


def test_what_sink_new_writes_works_at_once(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any):
    """The package is sound, builds, is a kind where it is installed, and passes its tests."""
    for check in (["check"], ["format", "--check"]):
        run(sys.executable, "-m", "ruff", *check, "--no-cache", made, cwd=made)
    monkeypatch.syspath_prepend(str(unpacked(wheel(made, tmp_path), tmp_path / "site")))
    try:
        registry = Registry.load()
        assert (registry.faults, registry.get("night_pager").__qualname__) == ((), "NightPager")
        own = runpy.run_path(str(made / "tests" / "test_night_pager.py"))
        own["test_a_file_holds_subject_and_data"](tmp_path)
        told = found(own["TestNightPager"]().make, tmp_path, capfd, TESTS)
        assert {name: said.partition("=")[0] for name, said in told.items()} == {
            "test_an_answer_within_the_deadline": "skipped: Given(…, hanging",
            "test_secrets_leave_no_trace": "skipped: Given(…, secrets",
        }
    finally:
        forget("sense_sink_night_pager")


@pytest.mark.long
def test_what_sink_new_writes_passes_its_tests_where_it_is_installed(made: Path, tmp_path: Path):
    """In an environment of its own, run as its author runs them."""
    python = environment(tmp_path / "environment", wheel(made, tmp_path))
    assert "night_pager" in kinds(python, tmp_path)["kinds"]
    assert own_tests(python, made / "tests", tmp_path).startswith("24 passed, 2 skipped")


def forget(package: str) -> None:
    """Let the modules of a package be imported anew."""
    for module in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[module]


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the example."""
    return wheel(EXAMPLE, tmp_path_factory.mktemp("example"))


@pytest.fixture
def bench(tmp_path: Path, example: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[IntakeBench]:
    """A recorder and a drain in whose process the example is installed."""
    monkeypatch.syspath_prepend(str(unpacked(example, tmp_path / "site")))
    database = Database(sqlite_url)
    bench = IntakeBench(tmp_path, database, Registry.load())
    yield bench
    bench.close()
    database.dispose()
    forget("team_inbox")


class Bell:
    """A doorbell that nobody rings."""

    def __getattr__(self, name: str):
        return lambda *_: False


def test_deliveries_reach_the_example_through_the_drain(bench: IntakeBench, tmp_path: Path):
    """Recorded events are judged, handed over to the installed plugin and settled; its file has each once."""
    file = tmp_path / "inbox.db"
    bench.rows.sink("team", "team_inbox", options={"path": str(file)})
    bench.granted(sink="team")
    bench.record(*(bench.entry(data={"n": number}) for number in range(5)))

    Drain(bench.ports).run("t-red/team", Bell(), 0.0)

    assert bench.query("SELECT state, count(*) FROM sense_delivery GROUP BY state") == [("delivered", 5)]
    with closing(sqlite3.connect(file)) as inbox:
        rows = inbox.execute("SELECT principal, data FROM item ORDER BY data").fetchall()
    assert rows == [("ana", f'{{"n": {number}}}') for number in range(5)]


@pytest.mark.long
def test_the_example_passes_its_tests_where_pip_installed_it(example: Path, tmp_path: Path):
    """In a clean environment, by the installer, with nothing from an index."""
    python = environment(tmp_path / "environment", example, pip=True)
    assert kinds(python, tmp_path)["faults"] == []
    assert "team_inbox" in kinds(python, tmp_path)["kinds"]
    assert own_tests(python, EXAMPLE / "tests", tmp_path).startswith("24 passed, 2 skipped")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("inbox", "kind 'inbox' is built in"),
        ("Pager", "'Pager' is no name for a kind"),
        ("class", "'class' is no name for a kind"),
        ("../up", "'../up' is no name for a kind"),
        ("a" * 33, "is no name for a kind"),
    ],
)
def test_a_name_that_cannot_be_a_kind_writes_nothing(tmp_path, monkeypatch, capsys, name, said):
    """It is refused with the reason before a file is made."""
    monkeypatch.chdir(tmp_path)
    assert main.run(["sink", "new", name]) == 2
    assert said in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []


def test_what_is_there_is_not_overwritten(tmp_path, monkeypatch, capsys):
    """A folder that holds something, or a file in its place, stays as it is; an empty folder is taken."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    assert main.run(["sink", "new", "pager", "--path", "empty"]) == 0
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    (tmp_path / "file").touch()
    for path in ("empty", "file"):
        assert main.run(["sink", "new", "pager", "--path", path]) == 2
        assert f"{path} is there already, and nothing is overwritten" in capsys.readouterr().err
    assert {file: file.read_bytes() for file in before} == before
    assert main.run(["sink", "new", "pager", "--path", "/proc/nowhere"]) == 2
    assert "/proc/nowhere: " in capsys.readouterr().err
