"""What each kind of process loads: a library that it does not use costs every start of it.

CPU of an import, where this was measured: SQLModel with the ORM and our models 260 ms, Celery's command line 230 ms,
alembic 200 ms, structlog with rich 140 ms, redis-py 105 ms, another database's dialect 40 ms.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

NOWHERE = {"sqlmodel", "sqlalchemy.orm", "prompt_toolkit", "aiohttp", "keyring"}
"""Of the migrations, of the extras."""
UNASKED = NOWHERE | {"structlog", "alembic", "sqlalchemy.dialects.postgresql", "cel_expr_python"}
"""What a command or a worker on an up-to-date SQLite file does without."""
NO_WORKER = UNASKED | {"celery", "kombu", "redis", "yaml"}
NO_LEDGER = NO_WORKER | {"sqlalchemy", "sqlite3", "cryptography"}

LISTINGS = (
    ("status",),
    ("deliveries", "list"),
    ("explain", "00"),
    ("inbox", "list"),
    *((group, "list") for group in ("pack", "principal", "sink", "route", "grant", "dead")),
)
CHANGES = (
    ("grant", "add", "operator", "sense.enable", "--pack", "mail"),
    ("activate", "mail"),
    ("route", "add", "mail", "new_item", "inbox"),
)


def loaded(program: str, *arguments: str) -> set[str]:
    """Return the modules that a process has loaded when it has run this program."""
    code = f"import sys; {program}; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines()[-1].split())


def loaded_by(*commands: tuple[str, ...]) -> set[str]:
    """Return what a process has loaded that ran these command lines."""
    return loaded(f"from sense_worker.cli.main import run; [run([*line]) for line in {commands!r}]")


def test_who_announces_loads_no_database(mail):
    """`publish`, which a git hook starts at each commit, and what a pack adapter imports."""
    activation = mail.json("activate", "mail")["file"]

    assert loaded_by(("publish", "new_item", "--activation", activation, "--json")) & (NO_LEDGER | {"rich"}) == set()
    assert loaded("import sense_worker.publisher") & (NO_LEDGER | {"asyncio", "pydantic", "rich", "typer"}) == set()


def test_who_reads_or_changes_loads_neither_queue_nor_migrations(mail):
    """Listings and changes load what speaks with the database, and for JSON nothing that draws tables."""
    json = [(*line, "--json") for line in (*LISTINGS, *CHANGES)]

    assert loaded_by(*json) & (NO_WORKER | {"rich"}) == set()
    assert mail.json("route", "list")["items"] != []


def test_what_runs_in_memory_loads_no_database(tmp_path):
    """`check`, `schema` and `pack lint`."""
    (tmp_path / "one.json").write_text('{"scenario": 1, "cases": []}')
    lines = (("check", str(tmp_path / "one.json")), ("schema", "manifest"), ("pack", "lint", "examples/packs/git"))

    assert loaded_by(*lines) & (UNASKED | {"celery", "kombu", "sqlalchemy", "sqlite3"}) == set()


@pytest.mark.parametrize(
    ("modules", "without"),
    [
        ("sense_worker.operator", NO_WORKER | {"rich", "runtime_core.manifest_models", "tarfile"}),
        ("sense_worker.client", UNASKED | {"celery", "kombu", "sqlalchemy"}),
        ("sense_worker.up", UNASKED | {"celery", "kombu", "rich"}),
        ("sense_worker.app, sense_worker.intake.child, sense_worker.exec.child, sense_worker.schedule", UNASKED),
    ],
    ids=["operator", "web app", "up", "worker and readers"],
)
def test_what_stays_loads_what_it_works_with(modules, without):
    """A web app, the supervisor, and a worker with its nursery."""
    assert loaded(f"import {modules}") & without == set()
