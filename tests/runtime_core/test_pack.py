"""A pack as one: what it carries, how it is read from a folder, and that nothing is read through a link."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from runtime_core.errors import PackParseError, UsageError
from runtime_core.pack import Pack, PackRevision, pack_digest, read_folder, read_pack
from runtime_core.pack_file import FILE_LIMIT

CASES = Path(__file__).parents[1] / "cases"
HARNESS = "# Mail: lists, sends, fängt\n".encode()


def surface(**more: Any) -> bytes:
    """Return a manifest with two triggers."""
    triggers = [{"ref": "new_item", "summary": "An item", "data": {"required": ["id"]}}, {"ref": "shared"}]
    return json.dumps({"id": "mail", "adapter": "sense_only", "stimulusTriggers": triggers, **more}).encode()


def policy(pack_id: str = "mail") -> bytes:
    """Return the policy that covers it."""
    stimuli = {ref: {"operation": "read", "privacy": {"land": land}} for ref, land in LANDS.items()}
    return json.dumps({"surface_id": pack_id, "version": 1, "verbs": {}, "stimuli": stimuli}).encode()


LANDS = {"new_item": "personal", "shared": "brain"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a good pack."""
    at = tmp_path / "mail"
    at.mkdir()
    (at / "surface.json").write_bytes(surface())
    (at / "policy.json").write_bytes(policy())
    (at / "HARNESS.md").write_bytes(HARNESS)
    return at


def refusal(folder: Path) -> tuple[str, str]:
    """Return file and reason of the refusal; its place is the file's path."""
    with pytest.raises(PackParseError) as caught:
        read_folder(folder)
    names = {"surface": "surface.json", "policy": "policy.json", "harness": "HARNESS.md"}
    assert caught.value.place == str(folder / names[caught.value.file])
    return caught.value.file, caught.value.reason


class TestPack:
    @pytest.mark.spec("1.2.pack")
    @pytest.mark.spec("1.2.pack-id")
    def test_what_it_carries(self) -> None:
        """A pack carries its identity and the bytes of its three files."""
        pack = read_pack(surface(version="2.1", title="Mail", plane="control", family="post"), policy(), HARNESS)
        assert (pack.pack_id, pack.version, pack.title, pack.plane, pack.family) == (
            *("mail", "2.1", "Mail", "control", "post"),
        )
        assert (pack.surface_bytes, pack.policy_bytes, pack.harness) == (
            surface(version="2.1", title="Mail", plane="control", family="post"),
            policy(),
            HARNESS,
        )
        assert (pack.manifest.id, pack.policy.surface_id) == ("mail", "mail")

    @pytest.mark.spec("1.2.plane")
    def test_defaults(self) -> None:
        """Without them, the plane is runtime, the title the id, and the pack has no family."""
        pack = read_pack(surface(), policy(), b"")
        assert (pack.plane, pack.title, pack.family) == ("runtime", "mail", None)

    @pytest.mark.spec("1.3.trigger")
    def test_triggers(self) -> None:
        """Each declared ref has its land and checks data by its schema."""
        triggers = read_pack(surface(), policy(), HARNESS).triggers
        assert {ref: trigger.land for ref, trigger in triggers.items()} == LANDS
        assert (triggers["new_item"].ref, triggers["new_item"].summary) == ("new_item", "An item")
        assert triggers["new_item"].check({"id": 1}) is None
        assert triggers["new_item"].check({}) == '/: "id" is a required property'
        assert triggers["shared"].check({"anything": None}) is None

    def test_it_does_not_change(self) -> None:
        """A pack and its revision are frozen."""
        revision = PackRevision("acme", 3, read_pack(surface(), policy(), HARNESS), {"git": "/usr/bin/git"})
        with pytest.raises(dataclasses.FrozenInstanceError):
            revision.pack.plane = "control"  # type: ignore[misc]
        with pytest.raises(dataclasses.FrozenInstanceError):
            revision.generation = 4  # type: ignore[misc]

    def test_digest(self) -> None:
        """The digest is over the length-prefixed bytes: moving a byte from one file to the next changes it."""
        pack: Pack = read_pack(surface(), policy(), HARNESS)
        parts = (surface(), policy(), HARNESS)
        written = b"".join(str(len(part)).encode() + b":" + part for part in parts)
        assert pack.digest == hashlib.sha256(written).hexdigest()
        assert len({pack_digest(b"ab", b"c", b""), pack_digest(b"a", b"bc", b""), pack_digest(b"", b"", b"abc")}) == 3
        assert read_pack(surface() + b" ", policy(), HARNESS).digest != pack.digest

    @pytest.mark.parametrize(
        ("harness", "message"),
        [
            (b"\xff# Mail", "HARNESS.md (byte 0): encoding error: not UTF-8 (save it as UTF-8)"),
            (b"x" * (FILE_LIMIT + 1), f"HARNESS.md: {FILE_LIMIT + 1} bytes, the limit is {FILE_LIMIT}"),
        ],
    )
    def test_the_skill_is_text(self, harness: bytes, message: str) -> None:
        """HARNESS.md is UTF-8 of at most 1 MiB."""
        with pytest.raises(PackParseError) as caught:
            read_pack(surface(), policy(), harness)
        assert (caught.value.file, str(caught.value)) == ("harness", message)


class TestFolder:
    @pytest.mark.spec("1.2.pack")
    def test_reading(self, folder: Path) -> None:
        """The three files are read as they are; others in the folder are left alone."""
        (folder / "hooks").mkdir()
        (folder / "hooks" / "post-commit").symlink_to("/bin/true")
        assert read_folder(folder) == (surface(), policy(), HARNESS)

    def test_a_link_to_the_folder(self, folder: Path, tmp_path: Path) -> None:
        """The folder itself may be reached through a link: the caller named it."""
        (tmp_path / "link").symlink_to(folder)
        assert read_folder(tmp_path / "link").surface == surface()

    @pytest.mark.parametrize(
        ("name", "file"), [("surface.json", "surface"), ("policy.json", "policy"), ("HARNESS.md", "harness")]
    )
    def test_a_missing_file(self, folder: Path, name: str, file: str) -> None:
        """A file that is not there is named."""
        (folder / name).unlink()
        assert refusal(folder) == (file, "no such file")

    @pytest.mark.parametrize("target", ["outside.json", "mail/other.json", "nowhere"])
    def test_a_linked_file(self, folder: Path, tmp_path: Path, target: str) -> None:
        """A file that is a link is refused, wherever it leads."""
        for name in ("outside.json", "mail/other.json"):
            (tmp_path / name).write_bytes(surface())
        (folder / "surface.json").unlink()
        (folder / "surface.json").symlink_to(tmp_path / target)
        assert refusal(folder) == ("surface", "a link; a pack holds its files itself")

    def test_no_regular_file(self, folder: Path) -> None:
        """A folder, a pipe and a socket in the place of a file are refused, without waiting for a writer."""
        at = folder / "policy.json"
        at.unlink()
        at.mkdir()
        assert refusal(folder) == ("policy", "not a regular file")
        at.rmdir()
        os.mkfifo(at)
        assert refusal(folder) == ("policy", "not a regular file")
        at.unlink()
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(at))
            assert refusal(folder)[0] == "policy"

    def test_size(self, folder: Path) -> None:
        """A file of 1 MiB is read, one byte more is refused, however large it is."""
        at = folder / "HARNESS.md"
        at.write_bytes(b"x" * FILE_LIMIT)
        assert len(read_folder(folder).harness) == FILE_LIMIT
        with at.open("r+b") as stream:
            stream.truncate(1 << 40)
        assert refusal(folder) == ("harness", f"over the limit of {FILE_LIMIT} bytes")

    def test_no_folder(self, folder: Path, tmp_path: Path) -> None:
        """A path that is no folder is the caller's mistake."""
        for path, reason in (
            (tmp_path / "none", "No such file or directory"),
            (folder / "surface.json", "Not a directory"),
        ):
            with pytest.raises(UsageError) as caught:
                read_folder(path)
            assert (caught.value.place, caught.value.reason) == (str(path), reason)


@pytest.mark.case("C22")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (
            "C22-bom-policy.json",
            "policy.json: begins with a UTF-8 byte-order mark (EF BB BF) (save it without the mark)",
        ),
        ("C22-utf16-policy.json", "policy.json: encoding error: UTF-16, by its byte-order mark (save it as UTF-8)"),
    ],
)
def test_the_handed_marks(name: str, reason: str) -> None:
    """A policy with a mark is refused by its name, one in UTF-16 as an encoding error; the same pack without loads."""
    mail = json.dumps(
        {
            "id": "mail",
            "adapter": "wrap",
            "verbs": {"mail.list": {}, "mail.send": {}},
            "stimulusTriggers": [{"ref": "new_item"}],
        }
    ).encode()
    with pytest.raises(PackParseError) as caught:
        read_pack(mail, (CASES / name).read_bytes(), b"")
    assert (caught.value.file, str(caught.value)) == ("policy", reason)
    assert read_pack(mail, (CASES / "C21-good.json").read_bytes(), b"").pack_id == "mail"
