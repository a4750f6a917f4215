"""What commands print."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

from sense_worker.cli import render

AT = 1_767_225_600_000_001
EVENT = bytes.fromhex("5c6ffbdd40d9556b73a21e63c3e0e904")


class Step(NamedTuple):
    """A row that is a named tuple."""

    name: str
    text: str | None


@dataclass(frozen=True)
class Row:
    """A row with a field of each kind."""

    id: str
    created_at: int
    disabled_at: int | None
    keys: list[str] | None
    event: bytes
    file: Path
    ok: bool
    steps: tuple[Step, ...]
    secret: str = field(repr=False, default="s3cret")


def row(**changes):
    """A row, but for `changes`."""
    given = {
        "id": "rte_0123456789abcdef",
        "created_at": AT,
        "disabled_at": None,
        "keys": ["a", "b"],
        "event": EVENT,
        "file": Path("/x"),
        "ok": True,
        "steps": (Step("authenticate", None),),
    }
    return Row(**given | changes)


def test_a_listing_in_json_is_versioned_items(capsys):
    """Moments are RFC 3339 in UTC, bytes hexadecimal, paths text, rows objects; what is not for eyes is not there."""
    render.print_table([row()], {"ROUTE": "id"}, as_json=True, empty="none")

    assert json.loads(capsys.readouterr().out) == {
        "v": 1,
        "items": [
            {
                "id": "rte_0123456789abcdef",
                "created_at": "2026-01-01T00:00:00.000001Z",
                "disabled_at": None,
                "keys": ["a", "b"],
                "event": "5c6ffbdd40d9556b73a21e63c3e0e904",
                "file": "/x",
                "ok": True,
                "steps": [{"name": "authenticate", "text": None}],
            }
        ],
    }


def test_a_row_is_as_long_as_its_own_cells(capsys, monkeypatch):
    """Beside a terminal a long cell lengthens its own line alone; in one of 60 columns it is broken."""
    monkeypatch.delenv("COLUMNS", raising=False)
    rows = [{"name": "hook", "fault": "word " * 30 + "end"}, {"name": "inbox", "fault": None}]
    columns = {"SINK": "name", "FAULT": "fault"}
    render.print_table(rows, columns, as_json=False, empty="none")

    assert capsys.readouterr().out.splitlines() == ["SINK   FAULT", f"hook   {'word ' * 30}end", "inbox  -"]

    monkeypatch.setenv("COLUMNS", "60")
    render.print_table(rows, columns, as_json=False, empty="none")
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines) <= 60
    assert " ".join(" ".join(lines[1:-1]).split()) == f"hook {'word ' * 30}end"
    assert [line for line in lines if line.endswith(" ")] == []


def test_an_empty_listing_says_so_to_people_and_is_an_empty_list_to_programs(capsys):
    """No table of nothing."""
    render.print_table([], {"ROUTE": "id"}, as_json=False, empty="no routes")
    render.print_table([], {"ROUTE": "id"}, as_json=True, empty="no routes")

    people, _, programs = capsys.readouterr().out.partition("\n")
    assert (people, json.loads(programs)) == ("no routes", {"v": 1, "items": []})


def test_one_row_in_json_is_versioned_fields(capsys):
    """A show or a change prints the row beside the version."""
    render.print_row({"id": "a"}, "added", as_json=True)

    assert json.loads(capsys.readouterr().out) == {"v": 1, "id": "a"}


@pytest.mark.case("C62")
@pytest.mark.parametrize("text", ["\x1b[2J", "a\nb", "\x9b1m", "\u202e", "\x7f", "\u2028", "\ud800", "\r"])
def test_no_character_that_moves_a_terminal_is_ever_printed(text, capsys):
    """Control, format and separator characters come out escaped in tables, cards, rows, lines, warnings and JSON."""
    item = {"id": text, "note": text}
    render.print_table([item], {"ID": "id", "NOTE": "note"}, as_json=False, empty="")
    render.print_cards(
        [item], lambda row: (render.cell(row, "id"),), lambda row: [render.cell(row, "note")], as_json=False, empty=""
    )
    render.print_row(item, text, as_json=False)
    render.print_row(item, as_json=True)
    render.print_lines([text])
    render.warn(text)

    shown = capsys.readouterr()
    odd = {char for char in shown.out + shown.err if not char.isprintable()} - {"\n"}
    assert odd == set()


def test_json_reads_back_what_was_escaped(capsys):
    """Escaping changes no value for programs."""
    render.print_row({"id": "\x7f\x1b\u202eé"}, as_json=True)

    assert json.loads(capsys.readouterr().out)["id"] == "\x7f\x1b\u202eé"


def wide_rows():
    """Two rows with a cell that does not fit."""
    return [row(id="rte_0123456789abcdef", keys=[f"trigger.number.{n}" for n in range(9)]) for _ in range(2)]


def test_a_table_fits_80_columns_and_never_breaks_an_id(monkeypatch, capsys):
    """Long cells fold; ids and moments stay whole, so that they can be copied."""
    monkeypatch.setenv("COLUMNS", "80")

    render.print_table(wide_rows(), {"ROUTE": "id", "KEYS": "keys", "CREATED": "created_at"}, as_json=False, empty="")

    shown = capsys.readouterr().out
    assert max(len(line) for line in shown.splitlines()) <= 80
    assert shown.count("rte_0123456789abcdef") == shown.count("2026-01-01 00:00:00") == 2


def test_beside_a_terminal_a_row_is_one_line(monkeypatch, capsys):
    """`sense-worker … | grep` sees whole rows."""
    monkeypatch.delenv("COLUMNS", raising=False)

    render.print_table(wide_rows(), {"ROUTE": "id", "KEYS": "keys"}, as_json=False, empty="")

    assert len(capsys.readouterr().out.splitlines()) == 3


def test_a_card_keeps_a_long_id_on_a_line_of_its_own(monkeypatch, capsys):
    """Delivery ids have 53 characters: they stand whole, under aligned cells."""
    monkeypatch.setenv("COLUMNS", "80")
    rows = [{"state": "delivered", "ref": "a", "id": "x" * 53}, {"state": "held", "ref": "b", "id": "y" * 53}]

    render.print_cards(rows, lambda row: (row["state"], row["ref"]), lambda row: [row["id"]], as_json=False, empty="")

    assert capsys.readouterr().out.splitlines() == [
        "delivered  a",
        f"  {'x' * 53}",
        "held       b",
        f"  {'y' * 53}",
    ]


def test_a_row_shows_its_fields_by_name(capsys):
    """Nothing is a dash, a flag yes or no, a moment cut to the second."""
    render.print_row(row(steps=()), "route", as_json=False)

    assert capsys.readouterr().out.splitlines() == [
        "route",
        "  id           rte_0123456789abcdef",
        "  created at   2026-01-01 00:00:00",
        "  disabled at  -",
        "  keys         a, b",
        "  event        5c6ffbdd40d9556b73a21e63c3e0e904",
        "  file         /x",
        "  ok           yes",
        "  steps        -",
    ]
