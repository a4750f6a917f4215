"""Every listing and row, with the strings of C62 in each text of the database: as many lines as with plain ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from runtime_core.audit import AuditRecord
from sense_worker.home import audit_log
from sense_worker.operator import Operator
from sense_worker.settings import Settings
from sense_worker.storage import schema, tables
from sense_worker.storage.engine import Database
from sense_worker.vault import Vault
from sinks.inbox_tables import item
from tests.provision import SURFACE, write_pack

STRINGS = json.loads((Path(__file__).parents[2] / "cases" / "C62-strings.json").read_text())
AT = 1_767_225_600_000_000
LONGEST = 256
"""Characters: longer ids and subjects pass no door."""
TEXTS = [
    pytest.param([" ".join(STRINGS)[:LONGEST]], id="all in one"),
    pytest.param([text[:LONGEST] for text in STRINGS], id="each", marks=pytest.mark.long),
]
KEY = bytes(range(16))
ROUTE = "rte_1"
"""Ids are made here, and of visible ASCII; everything else may be any text."""
ATTEMPT = sa.table("sense_attempt", *(sa.column(name) for name in (
    "event_id", "route_id", "seq", "attempt", "state", "step", "reason", "by", "at"
)))  # fmt: skip


def rows(text: str, seal: Any) -> list[tuple[Any, dict[str, Any]]]:
    """Return a row of each table that a command shows, with `text` wherever a text may be."""
    made: dict[str, Any] = {"created_at": AT}
    own: dict[str, Any] = {"tenant": "default"}
    named = {"pack_id": text, "ref": text, "project": text}
    event: dict[str, Any] = {
        "publisher": text,
        "message_id": text,
        "stream_id": text,
        "activation_id": text,
        "subject": text,
    }
    event |= {"occurred_at": text, "accepted_at": AT}
    wire = {"body": json.dumps({"ref": text}).encode(), "body_digest": b"d" * 32, "generation": 1, "digest": text}
    lane: dict[str, Any] = {
        "lane": f"default/{text}",
        "owner": text,
        "state": "denied",
        "reason": text,
        "step": text,
        "attempt": 2,
    }
    lane |= {"due_at": 0, "crashes": 0, "alone": False, "digest": text, "grant_id": text, "settled_at": AT}
    dead: dict[str, Any] = {
        "stream": text,
        "stream_id": text,
        "word": text,
        "detail": text,
        "at": AT,
        "raw": "",
        "raw_length": 0,
    }
    return [
        (schema.PRINCIPAL, {**own, **made, "id": text, "kind": text, "operator": False}),
        (schema.SESSION, {**own, **made, "id": text, "principal": text, "secret": seal(b"x"), "expires_at": AT}),
        (schema.PROJECT, {**own, **made, "id": text}),
        (schema.MEMBERSHIP, {**own, **made, "project": text, "principal": text}),
        (
            schema.GRANT,
            {**own, **made, "id": text, "principal": text, "capability": text, "pack_id": text, "keys": [text] * 2}
            | {"project": text, "created_by": text},
        ),
        (
            schema.SINK,
            {**own, **made, "name": text, "kind": text, "audience": text, "audience_id": text, "disabled_at": AT}
            | {"options": seal(json.dumps({text: text}).encode()), "disabled_reason": text},
        ),
        (
            schema.ROUTE,
            {**own, **made, **named, "id": ROUTE, "owner": text, "sink": text, "options": {}, "created_by": ""},
        ),
        (schema.EVENT, {**own, **named, **event, **wire, "id": KEY, "signed_at": AT, "receipt": json.dumps({text: 1})}),
        (schema.DELIVERY, {**own, **made, **lane, "event_id": KEY, "route_id": ROUTE}),
        (
            ATTEMPT,
            {"event_id": KEY, "route_id": ROUTE, "seq": 1, "attempt": 1, "state": "retrying", "step": text, "at": AT}
            | {"reason": text, "by": text},
        ),
        (
            item,
            {
                **own,
                **named,
                "event_id": KEY,
                "route_id": ROUTE,
                "principal": "operator",
                "publisher": text,
                "land": text,
            }
            | {"subject": text, "occurred_at": text, "accepted_at": AT, "body": wire["body"]},
        ),
        (schema.DEAD_ENTRY, {**own, **dead, "raw_digest": text, "activation_id": text, "event_id": KEY}),
    ]


def fill(home: Path, text: str) -> None:
    """Put `text` wherever a command may find one: tables, a pack's files, the audit."""
    settings = Settings.load({"HCP_HOME": str(home)})
    vault = Vault.load(settings)
    database = Database(settings.database_url)
    with database.write() as connection:
        for table, values in rows(text, vault.seal):
            connection.execute(sa.insert(table).values(**values))
        tenant = sa.update(tables.Tenant).values(authority_version=tables.Tenant.authority_version + 1)
        connection.execute(tenant)
    database.dispose()
    shown = text.replace("\0", "")  # no door lets it into a pack
    triggers = [{**one, "summary": shown} for one in SURFACE["stimulusTriggers"]]
    surface = {**SURFACE, "title": shown, "version": "1.0.1", "stimulusTriggers": triggers}
    with Operator.open(settings) as operator:
        operator.install_pack(write_pack(home / "source", surface))
    audit = audit_log(settings, vault)
    audit.append([AuditRecord(text, False, *([text] * 10))])
    audit.close()


def commands(text: str) -> list[tuple[str, ...]]:
    """Return every command that shows what is there."""
    lists = [(group, "list") for group in ("principal", "session", "project", "grant", "sink", "route", "pack")]
    lists += [("deliveries", "list"), ("inbox", "list"), ("dead", "list"), ("audit", "tail")]
    delivery = f"{KEY.hex()}.{ROUTE}"
    shows = [("pack", "show", "mail"), ("deliveries", "show", delivery), ("dead", "show", text)]
    return [*lists, *shows, ("explain", KEY.hex()), ("explain", delivery), ("explain", text), ("status",)]


@pytest.mark.case("C62")
@pytest.mark.parametrize("texts", TEXTS)
def test_no_text_breaks_a_line_of_any_command(bare, templates, tmp_path, monkeypatch, texts):
    """One record stays one record in every listing and row, and nothing that moves a terminal reaches it."""
    lines: dict[str, list[int]] = {}
    odd: set[tuple[str, str]] = set()
    for number, text in enumerate(["plain", *texts]):
        home = tmp_path / f"home-{number}"
        shutil.copytree(templates / "mail", home)
        monkeypatch.setenv("HCP_HOME", str(home))
        fill(home, text)
        for name, *arguments in commands(text):
            done = bare(name, *arguments)
            warned = int(name == "status")  # there is no server
            assert (done.code, done.err.count("\n")) == (0, warned), (name, arguments)
            call = f"{name} {arguments[0] if arguments else ''} {len(arguments)}"
            lines.setdefault(call, []).append(done.out.count("\n"))
            odd |= {(call, char) for char in done.out if not char.isprintable() and char != "\n"}

    assert odd == set()
    assert {call: counts for call, counts in lines.items() if len(set(counts)) > 1} == {}


@pytest.mark.case("C62")
@pytest.mark.parametrize("texts", TEXTS)
def test_programs_read_back_what_was_there(bare, templates, tmp_path, monkeypatch, texts):
    """In JSON every text is the one that was put there, in ASCII."""
    for number, text in enumerate(texts):
        home = tmp_path / f"home-{number}"
        shutil.copytree(templates / "mail", home)
        monkeypatch.setenv("HCP_HOME", str(home))
        fill(home, text)

        done = bare("dead", "show", text, "--json")

        assert done.out.isascii()
        assert [done.json[name] for name in ("stream", "stream_id", "word", "detail", "activation_id")] == [text] * 5
        assert text in bare.ids("principal", "list")
