"""`rotate` and `session rotate`: where the new secret goes, and that it is never printed."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest


def secret(file: str | Path) -> str:
    """Return the secret in a session's or activation's file."""
    return str(json.loads(Path(file).read_text())["secret"])


def test_an_activations_file_gets_the_new_secret(mail):
    """The file the adapter reads holds it, 0600; standard output says until when the old one is good."""
    row = mail.json("activate", "mail")
    before = secret(row["file"])

    rotated = mail.json("rotate", row["id"], "--overlap", "15m")
    assert (rotated["id"], rotated["file"], rotated["overlap_ends_at"] is None) == (row["id"], row["file"], False)
    assert (secret(row["file"]) != before, stat.S_IMODE(Path(row["file"]).stat().st_mode)) == (True, 0o600)
    shown = mail("rotate", row["id"], "--overlap", "0").out
    assert shown.startswith(f"rotated {row['id']}; the secret before is dead\n")
    assert (before in shown, secret(row["file"]) in shown) == (False, False)
    assert "; the secret before is good until 2" in mail("rotate", row["id"]).out


def test_the_acting_session_goes_on_in_its_file(mail):
    """Rotated without an overlap, the next command acts with the new secret from the same file."""
    file = mail.home / "operator.session"
    before = secret(file)
    session_id = json.loads(file.read_text())["session_id"]

    rotated = mail.json("session", "rotate", session_id, "--overlap", "0")
    assert (rotated["file"], rotated["overlap_ends_at"], "secret" in rotated) == (str(file), None, False)
    assert secret(file) != before
    assert session_id in mail.ids("session", "list")


def test_anothers_session_goes_where_session_create_put_it(mail, tmp_path):
    """By default the file under the home; not over another session's, for which there is --file."""
    row = mail.json("session", "create", "ana")
    before = secret(row["file"])

    assert mail.json("session", "rotate", row["id"])["file"] == row["file"]
    assert secret(row["file"]) != before
    mail.json("session", "create", "ana", "--force")
    refused = mail("session", "rotate", row["id"])
    assert (refused.code, "holds session ses_" in refused.err, "another place" in refused.err) == (1, True, True)
    place = tmp_path / "ana.session"
    assert mail.json("session", "rotate", row["id"], "--file", str(place))["file"] == str(place)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("rotate", "act_0"), 1, "there is no 'act_0'"),
        (("session", "rotate", "ses_0"), 1, "there is no 'ses_0'"),
        (("rotate", "act_0", "--overlap", "soon"), 2, "--overlap: 'soon' is no duration"),
        (("rotate", "act_0", "--overlap", "99d"), 2, "overlap: must be between 0 and 30 days"),
    ],
)
def test_what_cannot_be_rotated_is_one_line(mail, arguments, code, words):
    """An unknown id, a duration that is none or too long."""
    done = mail(*arguments)

    assert (done.code, done.out, words in done.err) == (code, "", True)
