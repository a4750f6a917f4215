"""Archives: sound ones with their headers, names and bytes changed, against the standard library's listing of them."""

from __future__ import annotations

import gzip
import io
import re
import stat
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime_core.archive import read_archive
from runtime_core.errors import PackError, PackParseError, UsageError
from tests.fuzz.door import CORPUS, Door, one_line
from tests.fuzz.mutation import chance, with_bytes

if TYPE_CHECKING:
    import random

FILES = {"surface.json": b'{"id": "mail"}', "policy.json": b'{"version": 1}' * 40, "HARNESS.md": b"# Mail\n"}
NAMES = (
    *("surface.json", "policy.json", "HARNESS.md", "mail/surface.json", "mail/HARNESS.md"),
    *("SURFACE.json", "../surface.json"),
    *("/etc/passwd", "a/../b", "C:/x", "a\\b", "a\x00b", "./policy.json", "mail//policy.json", "mail/", ""),
    *(".", "a/b/surface.json"),
    *("x\n", "é", "\u202e", "k" * 99),
)
BLOCK = 512
TAR_FIELDS = (
    (0, 100),
    (100, 8),
    (108, 8),
    (124, 12),
    (136, 12),
    (156, 1),
    (157, 100),
    (257, 8),
    (345, 155),
    (386, 97),
    (483, 12),
)
TAR_VALUES = (
    *(b"\0", b"0", b"1", b"2", b"5", b"7", b"L", b"K", b"x", b"g", b"S", b"D", b"00000000017\0"),
    *(b"-0000001000\0", b"77777777777\0"),
    *(b"\xff" * 12, b"\x80" + b"\0" * 10 + b"\x10", b"\x80" + b"\xff" * 11, b"ustar  \0", b"", b" " * 12, b"9" * 12),
)
PAX = (
    *(b"20 path=../../x.txt\n", b"13 size=-512\n", b"12 size=512\n", b"999999 size=1\n"),
    *(b"0 path=x\n", b"18 GNU.sparse.map=\n"),
    *(b"25 GNU.sparse.size=99999\n", b"30 GNU.sparse.major=1\n12 x=1\n"),
    *(b"23 hdrcharset=BINARY\n\n", b"16 linkpath=/x\n"),
)
_FOLDER = tempfile.TemporaryDirectory(prefix="sense-fuzz-")


def _zip(method: int, names: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as archive:
        for name, raw in names.items():
            archive.writestr(zipfile.ZipInfo(name), raw, method)
    return target.getvalue()


def _tar(form: int, names: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=form) as archive:
        for name, raw in names.items():
            info = tarfile.TarInfo(name)
            info.size = len(raw)
            info.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            archive.addfile(info, io.BytesIO(raw))
    return target.getvalue().rstrip(b"\0") + b"\0" * 2 * BLOCK


_HOMED = {"mail/": b"", **{f"mail/{name}": raw for name, raw in FILES.items()}}
_LONG = {**FILES, f"{'é' * 80}/{'k' * 120}": b"x"}
ZIPS = [_zip(method, names) for method in (0, 8) for names in (FILES, _HOMED, _LONG)]
TARS = [
    *(_tar(form, names) for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT) for names in (FILES, _HOMED)),
    *(_tar(form, _LONG) for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)),
]

KNOWN = [(f"pack{''.join(path.suffixes)}", path.read_bytes()) for path in sorted((CORPUS / "archive").iterdir())]


def _make(rng: random.Random) -> tuple[str, bytes]:
    if chance(rng, 3):
        raw = rng.choice(ZIPS)
        for _ in range(rng.choice((0, 1, 1, 2))):
            raw = _other_zip(rng, raw)
        return "pack.zip", with_bytes(rng, raw) if chance(rng, 6) else raw
    raw = rng.choice(TARS)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        raw = _other_tar(rng, raw)
    if chance(rng, 6):
        raw = with_bytes(rng, raw)
    if not chance(rng, 4):
        return "pack.tar", raw
    raw = gzip.compress(raw, 1)
    return "pack.tar.gz", with_bytes(rng, raw) if chance(rng, 3) else raw


def _other_zip(rng: random.Random, raw: bytes) -> bytes:
    """Change one field of one header, or a name in both of its places."""
    if chance(rng, 2):
        old = rng.choice(list(FILES)).encode()
        new = rng.choice(NAMES).encode()
        return raw.replace(old, new[: len(old)].ljust(len(old), rng.choice((b"x", b"/", b"\0"))), rng.choice((1, 2)))
    spots = [match.start() for match in re.finditer(rb"PK(?:\x01\x02|\x03\x04|\x05\x06)", raw)]
    if not spots:
        return raw
    at = rng.choice(spots) + rng.randrange(4, 46)
    value = rng.choice(
        (b"\0", b"\1", b"\xff", b"\xff\xff\xff\xff", b"\0\0\0\0", b"\0\0\xff\xa1", b"\x08\0", b"\x0c\0", b"\x09")
    )
    return raw[:at] + value + raw[at + len(value) :]


def _other_tar(rng: random.Random, raw: bytes) -> bytes:
    """Change one field of one header and make its checksum right again, or put a member in."""
    found = bytearray(raw)
    heads = [at for at in range(0, len(found) - BLOCK + 1, BLOCK) if found[at + 257 : at + 262] == b"ustar"]
    if not heads:
        return raw
    at = rng.choice(heads)
    if chance(rng, 4):
        head = found[at : at + BLOCK]
        data = rng.choice(PAX) if chance(rng, 2) else rng.choice(NAMES).encode()
        head[156:157] = rng.choice((b"x", b"x", b"g", b"L", b"K", b"0", b"S"))
        head[124:136] = b"%011o\0" % len(data)
        found[at:at] = _summed(head) + data.ljust(BLOCK, b"\0")
        return bytes(found)
    start, length = rng.choice(TAR_FIELDS)
    value = rng.choice(NAMES).encode() if start in {0, 157, 345} else rng.choice(TAR_VALUES)
    head = found[at : at + BLOCK]
    head[start : start + length] = value[:length].ljust(length, b"\0")
    found[at : at + BLOCK] = _summed(head)
    return bytes(found)


def _summed(head: bytearray) -> bytes:
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head)


def _read(given: tuple[str, bytes]) -> str:
    name, raw = given
    path = Path(_FOLDER.name) / name
    path.write_bytes(raw)
    try:
        files = read_archive(path)
    except (PackParseError, PackError, UsageError) as error:
        one_line(error)
        return "refused"
    members = _zipped(raw) if name.endswith(".zip") else _tarred(gzip.decompress(raw) if name.endswith("gz") else raw)
    assert len(members) <= 64
    assert sum(size for _, size, _ in members) <= 8 << 20
    plain = [tuple(part for part in name.split("/") if part not in {"", "."}) for name, _, _ in members]
    folded = ["/".join(parts).casefold() for parts in plain]
    assert len(set(folded)) == len(folded), "two members of one name"
    for member, _, _ in members:
        assert not member.startswith("/"), "absolute"
        assert ".." not in member.split("/"), "leads out"
        assert member.isprintable(), "control character"
        assert not re.search(r"\\|^[A-Za-z]:", member), "a path of another system"
    held = {parts: content for parts, (_, _, content) in zip(plain, members, strict=True) if content is not None}
    homes = [parts[:-1] for parts in held if parts[-1:] == ("surface.json",)]
    assert len(homes) == 1, "several packs"
    assert tuple(files) == tuple(held[*homes[0], file] for file in FILES)
    return "accepted"


def _zipped(raw: bytes) -> list[tuple[str, int, bytes | None]]:
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        infos = archive.infolist()
        assert all(stat.S_IFMT(info.external_attr >> 16) in {0, stat.S_IFREG, stat.S_IFDIR} for info in infos)
        return [
            (
                info.orig_filename,
                info.file_size,
                None if _is_folder(info) else _content(lambda info=info: archive.read(info)),
            )
            for info in infos
        ]


def _is_folder(info: zipfile.ZipInfo) -> bool:
    return info.orig_filename.endswith("/") or stat.S_ISDIR(info.external_attr >> 16)


def _tarred(raw: bytes) -> list[tuple[str, int, bytes | None]]:
    with tarfile.open(fileobj=io.BytesIO(raw), mode="r:") as archive:
        infos = archive.getmembers()
        assert all((info.isreg() or info.isdir()) and not info.issparse() for info in infos), "no plain member"
        return [
            (
                info.name,
                info.size,
                None if info.isdir() else _content(lambda info=info: archive.extractfile(info).read()),
            )
            for info in infos
        ]


def _content(read: Any) -> bytes | None:
    """Return what a member holds; None for one that the door may leave unread, as other files of an archive."""
    try:
        found: bytes = read()
    except (OSError, ValueError, RuntimeError, zlib.error, zipfile.BadZipFile, tarfile.TarError, EOFError):
        return None
    return found


DOORS = {"archive": Door("archive", _make, _read, KNOWN)}
