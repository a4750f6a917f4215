"""Values typed at a terminal."""

from __future__ import annotations

import io
import os
from types import SimpleNamespace

import pytest

from runtime_core.errors import UsageError
from runtime_core.event import BODY_LIMIT
from sense_worker.cli import values


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90.0), ("15m", 900.0), ("12h", 43200.0), ("30d", 2592000.0)])
def test_a_duration_is_a_number_and_a_unit(text, seconds):
    """Seconds, minutes, hours, days."""
    assert values.duration(text, "--expires") == seconds


@pytest.mark.parametrize("text", ["", "0s", "5", "1.5h", "-1d", "1w", "90 s", "\uff11s", "99999999999s", "1h30m"])
def test_another_duration_is_refused_with_its_place_and_a_way_out(text):
    """Whatever else is no duration; the line names the option."""
    with pytest.raises(UsageError) as refused:
        values.duration(text, "--expires")

    assert (refused.value.place, refused.value.way_out) == ("--expires", "write 90s, 15m, 12h or 30d")


def test_options_are_texts_unless_json_is_asked_for():
    """`name=value` is text also where it looks like a number; `name:=json` is JSON; an object gives several."""
    actual = values.options(["path=/x=y", "limit=5", "cap:=5", "on:=true", 'list:=["a"]'], '{"more": null}')

    assert actual == {"path": "/x=y", "limit": "5", "cap": 5, "on": True, "list": ["a"], "more": None}


@pytest.mark.parametrize(
    ("texts", "json_text", "line"),
    [
        (["path"], None, "--option: 'path' is not NAME=VALUE (write --option NAME=VALUE)"),
        (["=x"], None, "--option: '=x' is not NAME=VALUE (write --option NAME=VALUE)"),
        (["a=1", "a=2"], None, "--option: 'a' is given twice (give each name once)"),
        (["a=1", "a:=2"], None, "--option: 'a' is given twice (give each name once)"),
        (["a=1"], '{"a": 2}', "--option: 'a' is given twice (give each name once)"),
        ([":=1"], None, "--option: ':=1' is not NAME=VALUE (write --option NAME=VALUE)"),
        (["a=\udcff"], None, r"--option: 'a' is not UTF-8 (write name and value as UTF-8)"),
        ([], "[1]", "--options-json: must be an object, not a list"),
    ],
)
def test_bad_options_are_refused(texts, json_text, line):
    """One line, the option as its place."""
    with pytest.raises(UsageError) as refused:
        values.options(texts, json_text)

    assert str(refused.value) == line


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": 1, "a": 2}', "{", '{"a": "\\u0000"}', "\udc80"])
def test_json_is_parsed_as_strictly_as_at_every_other_door(text):
    """What the wire refuses a terminal refuses too, naming the option."""
    with pytest.raises(UsageError) as refused:
        values.json_object(text, "--data")

    assert refused.value.place.startswith("--data")


def test_an_object_comes_from_a_file_or_from_standard_input(tmp_path, monkeypatch):
    """`@FILE` and `-` stand for their content."""
    (tmp_path / "data.json").write_text('{"from": "file"}')
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b'{"from": "stdin"}')))

    assert values.json_object(f"@{tmp_path}/data.json", "--data") == {"from": "file"}
    assert values.json_object("-", "--data") == {"from": "stdin"}


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    """The line names the option and the file."""
    with pytest.raises(UsageError) as refused:
        values.json_object(f"@{tmp_path}", "--data")

    assert str(refused.value) == f"--data: {tmp_path}: Is a directory (name a readable file)"


def test_a_home_that_is_not_there_is_named():
    """`~NAME` of nobody is a file that cannot be read."""
    with pytest.raises(UsageError) as refused:
        values.json_object("@~nobody-here/x", "--data")

    assert str(refused.value) == "--data: ~nobody-here/x: Could not determine home directory. (name a readable file)"


def test_a_file_of_an_option_is_a_regular_file_with_a_bound(tmp_path):
    """A pipe is not waited for, a device without an end is not read, and a file over the bound is refused."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b" " * (BODY_LIMIT + 100))
    for name, reason in ((tmp_path / "pipe", "no regular file"), ("/dev/zero", "no regular file")):
        with pytest.raises(UsageError, match=rf"--data: .*{reason}"):
            values.json_object(f"@{name}", "--data")
    with pytest.raises(UsageError, match="limit"):
        values.json_object(f"@{tmp_path / 'large'}", "--data")
