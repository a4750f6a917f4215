"""Packs in archives: read whole into memory, or refused whole, with nothing written anywhere."""

from __future__ import annotations

import gzip
import io
import json
import os
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from runtime_core.archive import MEMBER_LIMIT, SIZE_LIMIT, read_archive, read_source
from runtime_core.errors import HcpError, PackError, PackParseError, UsageError
from runtime_core.pack import PackFiles, read_pack
from runtime_core.pack_file import FILE_LIMIT

CASES = Path(__file__).parents[1] / "cases"
FILES = {"surface.json": b'{"id": "mail"}', "policy.json": b'{"version": 1}', "HARNESS.md": b"# Mail\n"}
READ = PackFiles(*FILES.values())
FORMS = ["zip", "tar", "tar.gz", "tgz"]

Member = tuple[str, bytes]


def members(prefix: str = "", **more: bytes) -> list[Member]:
    """Return the three files under a prefix, and further ones."""
    return [*((f"{prefix}{name}", raw) for name, raw in FILES.items()), *more.items()]


def archive(folder: Path, form: str, content: list[Member]) -> Path:
    """Write an archive of regular files; a name that ends in a slash is a folder."""
    path = folder / f"pack.{form}"
    if form == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
            for name, raw in content:
                target.writestr(zipfile.ZipInfo(name), raw, zipfile.ZIP_DEFLATED)
        return path
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as target:
        for name, raw in content:
            info = tarfile.TarInfo(name)
            info.size = len(raw)
            if name.endswith("/"):
                info.type = tarfile.DIRTYPE
            target.addfile(info, io.BytesIO(raw))
    path.write_bytes(tar.getvalue() if form == "tar" else gzip.compress(tar.getvalue()))
    return path


def refusal(path: Path) -> str:
    """Return why an archive is refused whole, without its path."""
    with pytest.raises(PackError) as caught:
        read_archive(path)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(str(path))


def outcome(path: Path) -> str:
    """Return whether an archive is read or refused, and in the latter case whether the refusal says where."""
    try:
        return "read" if all(read_archive(path)) else "empty"
    except PackError as error:
        return "refused with its place" if str(error).startswith(str(path)) else f"refused: {error}"


@pytest.mark.parametrize("form", FORMS)
class TestEveryForm:
    @pytest.mark.parametrize("prefix", ["", "./", "mail/", "./mail/"])
    def test_where_the_pack_may_lie(self, tmp_path: Path, form: str, prefix: str) -> None:
        """The three files are read from the root or from the one top folder."""
        content = [*([(prefix, b"")] if prefix else []), *members(prefix)]
        assert read_archive(archive(tmp_path, form, content)) == READ

    def test_other_files_are_left_alone(self, tmp_path: Path, form: str) -> None:
        """Scripts, readmes and other folders may lie beside; names are compared by case."""
        more = {"mail/hooks/post-commit": b"#!/bin/sh\n", "README.md": b"x", "__MACOSX/x": b"", "mail/POLICY.md": b"x"}
        assert read_archive(archive(tmp_path, form, members("mail/", **more))) == READ

    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            ("/tmp/escaped", "!/tmp/escaped: an absolute path"),
            ("C:/escaped", "!C:/escaped: an absolute path"),
            ("c:escaped", "!c:escaped: an absolute path"),
            ("../escaped", "!../escaped: leads out of its folder"),
            ("mail/../../escaped", "!mail/../../escaped: leads out of its folder"),
            ("mail/..", "!mail/..: leads out of its folder"),
            ("mail\\..\\escaped", "!mail\\..\\escaped: no plain path: a backslash or control character"),
            ("mail/a\nb", "!mail/a\\nb: no plain path: a backslash or control character"),
            (".", "!.: a file without a name"),
            ("mail/a\u202eb", "!mail/a\\u202eb: no plain path: a backslash or control character"),
        ],
    )
    def test_names_that_lead_elsewhere(self, tmp_path: Path, form: str, name: str, reason: str) -> None:
        """One member with such a name refuses the archive."""
        assert refusal(archive(tmp_path, form, members("mail/", **{name: b"x"}))) == reason

    @pytest.mark.filterwarnings("ignore:Duplicate name")
    @pytest.mark.parametrize(
        "name", ["mail/policy.json", "./mail//policy.json", "mail/POLICY.JSON", "Mail/policy.json"]
    )
    def test_names_that_stand_twice(self, tmp_path: Path, form: str, name: str) -> None:
        """A name that stands twice, by another spelling or case too, refuses the archive: no copy wins."""
        path = archive(tmp_path, form, [*members("mail/"), (name, b"{}")])
        assert refusal(path) == f"!{name}: stands twice, or twice but for case"

    def test_several_packs(self, tmp_path: Path, form: str) -> None:
        """An archive holds one pack."""
        assert refusal(archive(tmp_path, form, [*members("a/"), *members("b/")])) == ": several packs: a and b"
        assert refusal(archive(tmp_path, form, [*members(), *members("a/x/")])) == ": several packs: . and a/x"

    def test_too_deep(self, tmp_path: Path, form: str) -> None:
        """A pack lies at the root or one folder down."""
        reason = "!a/b: a pack lies at the root of an archive or in its one folder"
        assert refusal(archive(tmp_path, form, members("a/b/"))) == reason

    @pytest.mark.parametrize(("name", "file"), [("surface.json", "surface"), ("HARNESS.md", "harness")])
    def test_a_missing_file(self, tmp_path: Path, form: str, name: str, file: str) -> None:
        """A missing file is named as in a folder; one in another folder does not stand in for it."""
        content = [member for member in members("mail/") if not member[0].endswith(name)]
        path = archive(tmp_path, form, [*content, (f"other/{name.lower()}x", b"")])
        with pytest.raises(PackParseError) as caught:
            read_archive(path)
        assert (caught.value.file, caught.value.reason) == (file, "no such file")

    def test_too_many_members(self, tmp_path: Path, form: str) -> None:
        """64 members are read and 65 refused."""
        more = {f"mail/f{n}": b"" for n in range(MEMBER_LIMIT - 3)}
        assert read_archive(archive(tmp_path, form, members("mail/", **more))) == READ
        assert refusal(archive(tmp_path, form, members("mail/", **more, last=b""))) == ": more than 64 members"

    def test_bombs(self, tmp_path: Path, form: str) -> None:
        """What unpacks to more than 8 MiB is refused, in one member or in many."""
        reason = f": unpacks to more than the limit of {SIZE_LIMIT} bytes"
        one = archive(tmp_path, form, members("mail/", **{"mail/big": bytes(SIZE_LIMIT)}))
        assert refusal(one) == (f": over the limit of {SIZE_LIMIT} bytes" if form == "tar" else reason)
        parts = {f"mail/f{n}": bytes(SIZE_LIMIT // 8) for n in range(8)}
        many = archive(tmp_path, form, members("mail/", **parts))
        assert refusal(many) == (f": over the limit of {SIZE_LIMIT} bytes" if form == "tar" else reason)

    def test_a_file_over_its_limit(self, tmp_path: Path, form: str) -> None:
        """A pack file of 1 MiB is read, one byte more is refused."""
        content = dict(members())
        content["HARNESS.md"] = b"x" * FILE_LIMIT
        assert len(read_archive(archive(tmp_path, form, list(content.items()))).harness) == FILE_LIMIT
        content["HARNESS.md"] += b"x"
        assert refusal(archive(tmp_path, form, list(content.items()))) == (
            f"!HARNESS.md: over the limit of {FILE_LIMIT} bytes"
        )

    def test_broken_archives(self, tmp_path: Path, form: str) -> None:
        """An archive cut or changed anywhere, or that is none, gives three files or a refusal with its place."""
        path = archive(tmp_path, form, members("mail/"))
        whole = path.read_bytes()
        broken = [whole[:end] for end in range(0, len(whole), max(1, len(whole) // 150))]
        broken += [
            whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :]
            for at in range(0, len(whole), max(1, len(whole) // 150))
        ]
        outcomes = set()
        for raw in (*broken, b"", b"PK", b"\x1f\x8b", b"no archive at all", bytes(1024)):
            path.write_bytes(raw)
            outcomes.add(outcome(path))
        assert outcomes == {"read", "refused with its place"}


class TestZip:
    @pytest.mark.parametrize(
        ("mode", "what"),
        [
            (stat.S_IFLNK, "a link"),
            (stat.S_IFIFO, "a device, pipe or socket"),
            (stat.S_IFCHR, "a device, pipe or socket"),
            (stat.S_IFSOCK, "a device, pipe or socket"),
        ],
    )
    def test_special_members(self, tmp_path: Path, mode: int, what: str) -> None:
        """A member that is no regular file refuses the archive, also one with the name of a folder."""
        for name in ("mail/x", "mail/x/"):
            path = archive(tmp_path, "zip", members("mail/"))
            info = zipfile.ZipInfo(name)
            info.external_attr = (mode | 0o777) << 16
            with zipfile.ZipFile(path, "a") as target:
                target.writestr(info, "/etc/hostname")
            assert refusal(path) == f"!{name}: is {what}; a pack is regular files"

    def test_a_name_with_a_nul(self, tmp_path: Path) -> None:
        """A name is judged as it stands, not as it ends at a NUL."""
        path = archive(tmp_path, "zip", members("mail/", **{"mail/policyXjson": b"x"}))
        path.write_bytes(path.read_bytes().replace(b"mail/policyXjson", b"mail/policy\x00json"))
        assert refusal(path) == "!mail/policy\\x00json: no plain path: a backslash or control character"

    @pytest.mark.parametrize("name", [b"\x00" * 11, b"\x00/policy.json"[:11]])
    def test_a_name_that_begins_with_a_nul(self, tmp_path: Path, name: bytes) -> None:
        """A name that is empty up to its NUL is refused like any other with one."""
        path = archive(tmp_path, "zip", members())
        path.write_bytes(path.read_bytes().replace(b"policy.json", name))
        assert refusal(path).endswith("no plain path: a backslash or control character")

    def test_unusual_methods(self, tmp_path: Path) -> None:
        """Only stored and deflated members are read; encrypted ones are refused."""
        path = tmp_path / "pack.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as target:
            target.writestr("surface.json", FILES["surface.json"])
        assert refusal(path) == "!surface.json: is neither stored nor deflated; a pack is regular files"
        encrypted = bytearray(archive(tmp_path, "zip", members()).read_bytes())
        encrypted[encrypted.index(b"PK\x01\x02") + 8] |= 1
        path.write_bytes(bytes(encrypted))
        assert refusal(path) == "!surface.json: is encrypted; a pack is regular files"

    def test_a_size_that_lies(self, tmp_path: Path) -> None:
        """A member larger than its archive says is refused, and no more of it is unpacked."""
        path = archive(tmp_path, "zip", [*members()[:2], ("HARNESS.md", b"x" * 5_000_000)])
        raw = path.read_bytes()
        assert raw.count((5_000_000).to_bytes(4, "little")) == 2
        path.write_bytes(raw.replace((5_000_000).to_bytes(4, "little"), (7).to_bytes(4, "little")))
        assert refusal(path) == ": not a sound archive: Bad CRC-32 for file 'HARNESS.md'"


class TestTar:
    @pytest.mark.parametrize(
        ("kind", "what"),
        [
            (tarfile.SYMTYPE, "a link"),
            (tarfile.LNKTYPE, "a link"),
            (tarfile.FIFOTYPE, "a device, pipe or sparse file"),
            (tarfile.CHRTYPE, "a device, pipe or sparse file"),
            (tarfile.BLKTYPE, "a device, pipe or sparse file"),
            (tarfile.CONTTYPE, "a device, pipe or sparse file"),
            (b"Z", "a device, pipe or sparse file"),
        ],
    )
    def test_special_members(self, tmp_path: Path, kind: bytes, what: str) -> None:
        """A member that is no plain regular file refuses the archive."""
        path = archive(tmp_path, "tar", members("mail/"))
        info = tarfile.TarInfo("mail/x")
        info.type, info.linkname = kind, "../../etc/hostname"
        with tarfile.open(path, "a") as target:
            target.addfile(info)
        assert refusal(path) == f"!mail/x: is {what}; a pack is regular files"

    def test_a_sparse_bomb(self, tmp_path: Path) -> None:
        """A sparse file of a tebibyte is refused by what it is."""
        info = tarfile.TarInfo("mail/HARNESS.md")
        info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(1 << 40)}
        info.size = 512
        path = tmp_path / "pack.tar"
        with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as target:
            target.addfile(info, io.BytesIO(b"0\n".ljust(512, b"\x00")))
        assert refusal(path) == "!mail/HARNESS.md: is a device, pipe or sparse file; a pack is regular files"

    def test_nothing_hides_behind_a_broken_header(self, tmp_path: Path) -> None:
        """A broken header is not taken for the end."""
        path = archive(tmp_path, "tar", members("mail/", **{"mail/last": b"x"}))
        raw = path.read_bytes()
        path.write_bytes(raw.replace(b"mail/last", b"mail/lost"))
        assert refusal(path) == f": not a sound archive: no header at byte {raw.index(b'mail/last')}"

    def test_a_bomb_of_padding(self, tmp_path: Path) -> None:
        """What follows the last member counts: an archive that unpacks to more than 8 MiB is refused."""
        path = archive(tmp_path, "tar", members("mail/"))
        packed = path.with_suffix(".tgz")
        packed.write_bytes(gzip.compress(path.read_bytes() + bytes(SIZE_LIMIT)))
        assert refusal(packed) == f": unpacks to more than the limit of {SIZE_LIMIT} bytes"

    def test_a_member_cut_short(self, tmp_path: Path) -> None:
        """A file with less in it than its header says is refused."""
        path = archive(tmp_path, "tar", members())
        path.write_bytes(path.read_bytes()[: 5 * 512 + 3])
        assert refusal(path) == ": not a sound archive: unexpected end of data"


class TestPaths:
    def test_a_folder_or_an_archive(self, tmp_path: Path) -> None:
        """A source is a folder, also one named like an archive, or an archive by its name in any case."""
        for name in ("mail", "mail.zip"):
            folder = tmp_path / name
            folder.mkdir()
            for file, raw in FILES.items():
                (folder / file).write_bytes(raw)
            assert read_source(folder) == READ
        path = archive(tmp_path, "tar.gz", members())
        assert read_source(path.rename(tmp_path / "Mail.TAR.GZ")) == READ

    @pytest.mark.parametrize("name", ["pack.rar", "pack", "packzip", "pack.tar.xz"])
    def test_no_archive_by_its_name(self, tmp_path: Path, name: str) -> None:
        """Another suffix is the caller's mistake, and the way out names the suffixes."""
        (tmp_path / name).write_bytes(b"PK")
        with pytest.raises(UsageError) as caught:
            read_archive(tmp_path / name)
        assert caught.value.way_out == "name one of .zip, .tar, .tar.gz, .tgz"

    def test_no_file(self, tmp_path: Path) -> None:
        """A path that is not there, or is a folder, is the caller's mistake."""
        (tmp_path / "folder.zip").mkdir()
        for name, reason in (("none.zip", "No such file or directory"), ("folder.zip", "Is a directory")):
            with pytest.raises(UsageError) as caught:
                read_archive(tmp_path / name)
            assert (caught.value.place, caught.value.reason) == (str(tmp_path / name), reason)

    def test_a_name_that_is_too_long(self, tmp_path: Path) -> None:
        """No file system has such a name: the caller's mistake like any other path that is not there."""
        for suffix in ("", ".zip"):
            with pytest.raises(UsageError) as caught:
                read_source(tmp_path / f"{'k' * 300}{suffix}")
            assert caught.value.reason == "File name too long"

    def test_a_pipe(self, tmp_path: Path) -> None:
        """A pipe is refused, not waited for."""
        os.mkfifo(tmp_path / "pack.zip")
        with pytest.raises(PackError) as caught:
            read_source(tmp_path / "pack.zip")
        assert caught.value.reason == "not a regular file"


@pytest.mark.case("C23")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("C23-traversal.zip", "!mail/../../escaped.txt: leads out of its folder"),
        ("C23-absolute.zip", "!/tmp/sense-escaped.txt: an absolute path"),
        ("C23-symlink-file.zip", "!mail/notes.txt: is a link; a pack is regular files"),
        ("C23-symlink-dir-then-file.zip", "!mail/out: is a link; a pack is regular files"),
        ("C23-hardlink.tar", "!mail/link: is a link; a pack is regular files"),
    ],
)
def test_the_handed_archives(name: str, reason: str) -> None:
    """Each handed archive is refused whole, naming the member, and no file appears."""
    assert refusal(CASES / name) == reason
    escaped = [Path("/tmp/sense-escaped.txt"), CASES.parent / "escaped.txt", CASES.parents[1] / "escaped.txt"]
    assert [path for path in (*escaped, CASES.parent / "escaped2.txt") if path.exists()] == []


@pytest.mark.case("C23")
def test_the_handed_good_archive() -> None:
    """The good archive is read; its manifest is a sketch, and with an adapter it is a pack."""
    files = read_archive(CASES / "C23-good.zip")
    with pytest.raises(HcpError, match=r"surface\.json /adapter: required field is missing"):
        read_pack(*files)
    surface = json.dumps({**json.loads(files.surface), "adapter": "wrap"}).encode()
    assert read_pack(surface, files.policy, files.harness).pack_id == "mail"
