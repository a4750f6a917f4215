"""A credential's file is read again when it changes, and only for the credential it was read for."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from runtime_core.errors import UsageError
from runtime_core.signing import verify
from sense_worker.activation_file import held_activation
from sense_worker.spool import Spool
from sense_worker.wire import parse_entry
from tests.sense_worker.fake_stream import ANA, Stream, down, many, one, rules

if TYPE_CHECKING:
    from pathlib import Path

    from sense_worker.held_file import HeldFile

FACTS: dict[str, Any] = {
    "v": 1,
    "tenant": "acme",
    "principal": "ana",
    "activation_id": "act_1",
    "pack_id": "git",
    "secret": "s3cret",
    "redis_url": "unix:///nowhere",
}


def put(path: Path, mode: int = 0o600, **changes: Any) -> None:
    """Replace the file in one step, as a rotation does."""
    draft = path.with_name("draft")
    draft.write_text(json.dumps(FACTS | changes))
    draft.chmod(mode)
    draft.replace(path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Ana's activation file."""
    path = tmp_path / "activation.json"
    put(path)
    return path


def signer(entry: dict[bytes, bytes]) -> bytes | None:
    """Return the secret that signed an entry."""
    found = parse_entry(entry)
    signed = (found.c, found.i, found.t, found.b, found.s)
    return next((key for key in (b"s3cret", b"newer", b"newest") if verify([key], *signed)), None)


def test_a_publisher_signs_with_the_secret_that_its_file_holds_now(file):
    """Between two announcements the activation is rotated: the second is signed with the new secret, and reads once."""
    stream = Stream()
    held = held_activation(file)
    publishing = rules(stream, file=held)
    stream.drive(publishing.publish(one("e-1"), "accepted"))
    put(file, secret="newer")
    for id in ("e-2", "e-3"):
        stream.drive(publishing.publish(one(id), "accepted"))

    assert [signer(entry) for entry in stream.entries] == [b"s3cret", b"newer", b"newer"]
    assert not held.changed()


def test_a_batch_in_several_round_trips_follows_a_rotation_in_between(file):
    """The file is looked at before each round trip, not once a call."""
    stream = Stream()
    publishing = rules(stream, file=held_activation(file))

    def rotate_after_first(replies):
        put(file, secret="newer")
        return replies

    stream.faults = iter([None, rotate_after_first])
    stream.drive(publishing.publish_many(many(501)))

    assert [signer(entry) for entry in (stream.entries[499], stream.entries[500])] == [b"s3cret", b"newer"]


def test_what_a_spool_kept_is_signed_with_the_newest_secret(file, tmp_path):
    """An announcement kept before two rotations is signed anew, with the secret of the second, when it is sent."""
    stream = Stream(down(3))
    spool = Spool(tmp_path / "spool", ANA.origin)
    publishing = rules(stream, file=held_activation(file), spool=spool)
    assert stream.drive(publishing.publish(one("e-1"), "accepted")).spooled
    for secret in ("newer", "newest"):
        put(file, secret=secret)

    assert stream.drive(publishing.flush()) == 1
    assert [signer(entry) for entry in stream.entries] == [b"newest"]


@pytest.mark.parametrize("wrong", [{"pack_id": "mail"}, {"principal": "ben"}, {"tenant": "other"}])
def test_another_principals_activation_in_the_place_is_passed_over(file, wrong):
    """A running publisher never begins to announce as somebody else; what it had goes on."""
    held = held_activation(file)
    put(file, secret="newer", **wrong)

    assert held.renewed().secret == b"s3cret"
    assert not held.changed()


def test_a_file_that_cannot_be_used_now_is_looked_at_again(file):
    """Gone, torn or open to others: the secret read last goes on, and the file is taken up once it is sound."""
    held: HeldFile[Any] = held_activation(file)
    file.unlink()
    assert (held.changed(), held.renewed().secret) == (False, b"s3cret")
    file.write_text("{")
    assert (held.changed(), held.renewed().secret, held.changed()) == (True, b"s3cret", True)
    put(file, mode=0o644, secret="newer")
    assert held.renewed().secret == b"s3cret"
    file.chmod(0o600)

    assert held.renewed().secret == b"newer"


def test_a_relative_name_means_the_place_it_meant_at_the_start(file, monkeypatch):
    """A process that changes its folder looks at the same file."""
    monkeypatch.chdir(file.parent)
    held = held_activation(file.relative_to(file.parent))
    monkeypatch.chdir(os.sep)
    put(file, secret="newer")

    assert held.renewed().secret == b"newer"


def test_the_first_reading_is_the_callers_to_see(tmp_path):
    """A file that cannot be used at the start raises, naming the place."""
    with pytest.raises(UsageError, match=r"none\.json: cannot be read"):
        held_activation(tmp_path / "none.json")
