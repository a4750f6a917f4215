from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sinks.line import CONSOLE_DATA_LIMIT, console_line, json_line, rfc3339
from tests.sinks.deliveries import ACCEPTED_AT, delivery

STRINGS = json.loads((Path(__file__).parents[1] / "cases" / "C62-strings.json").read_text())
TEXTS = ("id", "tenant", "principal", "publisher", "project", "pack_id", "ref", "subject", "occurred_at")


def test_json_line_has_every_field_in_its_order():
    """A line is the delivery as documented, with the data of the body and the moments as texts."""
    line = json_line(delivery(7, data={"sha": "ab", "größe": 1.0}))
    assert line == (
        b'{"id":"00000000000000000000000000000007.rte_1","event_id":"00000000000000000000000000000007",'
        b'"tenant":"acme","principal":"ana","publisher":"ben","project":"apollo","pack_id":"git",'
        b'"ref":"commit.created","land":"brain","subject":"main","occurred_at":"2026-06-01T13:59:59+02:00",'
        b'"accepted_at":"2026-06-01T12:00:00.000001Z","attempt":1,"data":{"sha":"ab","gr\\u00f6\\u00dfe":1.0}}\n'
    )


def test_absent_project_and_subject_are_null():
    """What a delivery lacks is null, not left out."""
    found = json.loads(json_line(delivery(project=None, subject=None)))
    assert (found["project"], found["subject"]) == (None, None)


@pytest.mark.case("C62")
@pytest.mark.parametrize("text", [*STRINGS, "a\u2028b", "a\x85b", "a\x7fb", "a\u202eb", "😀", "\ud800"])
@pytest.mark.parametrize("field", TEXTS)
def test_json_line_is_one_plain_line_for_any_text(field: str, text: str):
    """Whatever text stands in a field, the line is one, ASCII without controls, and reads back as that text."""
    fields: dict[str, Any] = {field: text}
    line = json_line(delivery(**fields))
    assert line.count(b"\n") == 1
    assert line[:-1].decode("ascii").isprintable()
    assert json.loads(line)[field] == text


@pytest.mark.case("C62")
@pytest.mark.parametrize("text", [*STRINGS, "a\u2028b", "a\x85b", "a\x7fb", "a\u202eb", "😀"])
def test_json_line_is_one_plain_line_for_any_data(text: str):
    """Names and values inside data are escaped like everything else."""
    line = json_line(delivery(data={text: [text]}))
    assert line[:-1].decode("ascii").isprintable()
    assert json.loads(line)["data"] == {text: [text]}


@pytest.mark.case("C62")
@pytest.mark.parametrize("text", [*STRINGS, "a\u2028b", "a\x7fb", "a b", "😀"])
@pytest.mark.parametrize("field", ["id", "tenant", "principal", "pack_id", "ref", "subject"])
def test_console_line_is_one_plain_line_for_any_text(field: str, text: str):
    """No text of a stranger moves the cursor, starts a line, or poses as a part of the line."""
    plain = console_line("look", delivery())
    fields: dict[str, Any] = {field: text}
    odd = console_line("look", delivery(**fields))
    assert odd.isascii()
    assert odd.isprintable()
    assert odd != plain


def test_console_line_quotes_words_with_spaces():
    """A name with a space in it cannot read as two words of ours."""
    line = console_line("a b", delivery(pack_id="git x for", ref="c d", principal="e f"))
    assert line.startswith('sink "a b": "git x for" "c d" for "acme/e f" "main" {')


def test_console_line_in_words():
    """A console line names sink, pack, ref, tenant, principal, subject, data and delivery."""
    assert console_line("look", delivery(1)) == (
        'sink look: git commit.created for acme/ana "main" {"number":1} [00000000000000000000000000000001.rte_1]'
    )


def test_console_line_cuts_long_data():
    """A console shows the beginning of long data and its length."""
    line = console_line("look", delivery(data={"text": "x" * 10_000}))
    assert len(line) < CONSOLE_DATA_LIMIT + 200
    assert "... (10011 characters)" in line


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"data": null}',
        b'{"data": []}',
        b'{"data": {"a": NaN}}',
        b'{"data": {"a": Infinity}}',
        b'{"data": {"a": 1e999}}',
        b'{"data": {"a": "\xff"}}',
    ],
)
@pytest.mark.parametrize("render", [json_line, lambda d: console_line("look", d)], ids=["json", "console"])
def test_no_line_for_a_body_that_is_no_event(body: bytes, render):
    """A body without an object of data, or with a number JSON has no name for, raises instead of making a line."""
    with pytest.raises(ValueError, match=r"."):
        render(delivery(body=body))


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (ACCEPTED_AT, "2026-06-01T12:00:00.000001Z"),
        (253_402_300_799_999_999, "9999-12-31T23:59:59.999999Z"),
    ],
)
def test_rfc3339_is_exact(micros: int, text: str):
    """A moment keeps its last microsecond."""
    assert rfc3339(micros) == text
