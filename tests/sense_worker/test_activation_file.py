"""What a publisher is made of: the activation file, the server's URL, the bounds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from runtime_core.errors import (
    UsageError,
)
from sense_worker.activation_file import ActivationFile, held_activation
from sense_worker.publisher import Publisher

if TYPE_CHECKING:
    from pathlib import Path


GOOD: dict[str, Any] = {
    "v": 1,
    "tenant": "acme",
    "principal": "ana",
    "activation_id": "act_1",
    "pack_id": "git",
    "secret": "s3cret-of-ana",
    "redis_url": "unix:///nowhere/redis.sock",
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "activation.json"
    path.write_text(json.dumps(GOOD))
    path.chmod(0o600)
    return path


def test_the_activation_file_is_read_from_the_place_in_the_environment(file, monkeypatch):
    """Publisher() reads SENSE_ACTIVATION_FILE; further names in the file are passed over; no secret shows."""
    file.write_text(json.dumps(GOOD | {"later": True}))
    monkeypatch.setenv("SENSE_ACTIVATION_FILE", str(file))
    assert held_activation(None).value == ActivationFile(
        "acme", "ana", "act_1", "git", b"s3cret-of-ana", "unix:///nowhere/redis.sock"
    )
    with Publisher() as publisher:
        assert "s3cret" not in repr(publisher._rules)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "JSON|empty|end"),
        ("{", "line 1"),
        ("[]", "must be an object"),
        (json.dumps(GOOD)[:-1] + ',"v":1}', "v"),
        (json.dumps(GOOD | {"v": True}), "v: must be 1"),
        (json.dumps(GOOD | {"v": 2}), "v: must be 1"),
        (json.dumps(GOOD | {"secret": ""}), "secret: must be printable ASCII text"),
        (json.dumps(GOOD | {"secret": 5}), "secret: must be printable ASCII text"),
        (json.dumps(GOOD | {"secret": "é"}), "secret: must be printable ASCII text"),
        (json.dumps({name: GOOD[name] for name in GOOD if name != "principal"}), "principal: must be"),
        (json.dumps(GOOD | {"redis_url": 5}), "redis_url: must be text or null"),
        ("x" * 70_000, "limit"),
    ],
)
def test_a_wrong_activation_file_names_place_and_way_out(file, text, reason):
    """Each fault of the file is one line with the file, what is wrong, and the command that makes a new one."""
    file.write_text(text)
    with pytest.raises(UsageError, match=reason) as caught:
        Publisher(file)
    assert str(caught.value).startswith(str(file))
    assert "run `sense-worker activate PACK`" in str(caught.value)
    assert "s3cret-of-ana" not in str(caught.value)


def test_a_missing_activation_file_names_place_and_way_out(tmp_path, file, monkeypatch):
    """Unset, missing, a folder, a pipe, and open to others: each is named, with its way out."""
    monkeypatch.delenv("SENSE_ACTIVATION_FILE", raising=False)
    with pytest.raises(UsageError, match=r"^SENSE_ACTIVATION_FILE: is not set \(run `sense-worker activate PACK`"):
        Publisher()
    with pytest.raises(
        UsageError, match=r"cannot be read: No such file or directory \(run `sense-worker activate PACK`"
    ):
        Publisher(tmp_path / "none.json")
    with pytest.raises(UsageError, match="is no regular file"):
        Publisher(tmp_path)
    file.chmod(0o640)
    with pytest.raises(UsageError, match=rf"others may read or change it.*chmod 600 {file}"):
        Publisher(file)


@pytest.mark.parametrize(
    "url",
    [
        "s3cret", "http://h/0", "redis://", "redis:///0", "redis://h:port", "redis://h/zero", "redis://h/-1",
        "unix://", "unix://relative", "unix:///s?db=x", "unix:///s?colour=red", "redis://:s3cret@h:70000/0",
    ],
)  # fmt: skip
def test_a_wrong_redis_url_is_never_shown(file, url):
    """A URL that is none is refused with the accepted forms; it may hold a password, so it is not repeated."""
    with pytest.raises(UsageError, match=r"redis_url: is no address of a Redis server \(give redis://") as caught:
        Publisher(file, redis_url=url)
    assert "s3cret" not in str(caught.value)


def test_a_server_and_sane_bounds_are_needed(file):
    """No server in the file or the call, or a bound of nothing, is a UsageError that names it."""
    file.write_text(json.dumps(GOOD | {"redis_url": None}))
    with pytest.raises(UsageError, match=r"names no Redis server \(give redis_url=\)"):
        Publisher(file)
    for name in ("stream_limit", "timeout_s", "attempts", "confirm_timeout_s"):
        with pytest.raises(UsageError, match=f"{name}: must be above 0"):
            Publisher(file, redis_url="redis://h", **{name: 0})  # type: ignore[arg-type]
