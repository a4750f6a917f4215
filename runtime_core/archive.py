"""Packs in archives: read into memory member by member, never unpacked onto a disk (C23).

An archive is refused whole for one member that could write elsewhere: an absolute path, `..`, a link, a device, a pipe,
a name that stands twice. What else it holds besides the three files is counted and left alone.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from runtime_core.errors import PackError, PackParseError, UsageError
from runtime_core.pack import PackFiles, missing_file, read_folder
from runtime_core.pack_file import FILE_LIMIT, FILE_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

MEMBER_LIMIT: Final = 64
"""Files and folders of one archive."""
SIZE_LIMIT: Final = 8 * 1024 * 1024
"""Bytes of an archive, packed and unpacked: eight times what one file of a pack may have."""
SUFFIXES: Final = (".zip", ".tar", ".tar.gz", ".tgz")

_DRIVE = re.compile(r"[A-Za-z]:")
_PLAIN_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_PLAIN_TYPES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE)
_ENCRYPTED = 0x1
_SHOWN = 200
"""Characters of a member's name that are shown."""
_BROKEN = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError),
    *(ValueError, LookupError, OverflowError, struct.error, NotImplementedError, RuntimeError),
)
"""What the standard library raises for archives that are none, cut short or forged."""


class _Member(NamedTuple):
    name: str
    kind: str
    """`file`, `folder`, or what makes it refused."""
    size: int
    """Bytes, as the archive says; reading is capped on its own."""
    read: Callable[[int], bytes]
    """Read at most so many bytes."""


def read_source(path: Path) -> PackFiles:
    """Return the three files of a pack folder or archive; raises as `read_folder` and `read_archive` do."""
    try:
        packed = path.name.lower().endswith(SUFFIXES) and not path.is_dir()
    except OSError:  # as a name that is too long; reading it tells why
        packed = True
    return read_archive(path) if packed else read_folder(path)


def read_archive(path: Path) -> PackFiles:
    """Return the three files of a pack archive: at its root, or in its one folder that holds a pack.

    Raises UsageError for a path that cannot be read or is no archive by its name, PackError for an archive that is
    refused whole, PackParseError for a missing file or one over 1 MiB.
    """
    name = path.name.lower()
    if not name.endswith(SUFFIXES):
        raise UsageError(str(path), "not an archive by its name", f"name one of {', '.join(SUFFIXES)}")
    try:
        with open(path, "rb", opener=_without_waiting) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise PackError(str(path), "not a regular file")
            raw = stream.read(SIZE_LIMIT + 1)
    except OSError as error:
        raise UsageError(str(path), error.strerror or "cannot be read", "name a pack folder or archive") from None
    if len(raw) > SIZE_LIMIT:
        raise PackError(str(path), f"over the limit of {SIZE_LIMIT} bytes")
    try:
        if name.endswith(".zip"):
            with zipfile.ZipFile(io.BytesIO(raw)) as archive:
                return _pick(path, _zip_members(archive))
        raw = _unpacked(path, raw)
        with tarfile.open(fileobj=io.BytesIO(raw), mode="r:") as archive:
            return _pick(path, _tar_members(archive, raw))
    except _BROKEN as error:
        raise PackError(str(path), f"not a sound archive: {error or type(error).__name__}") from None


def _without_waiting(path: str, flags: int) -> int:
    # Without O_NONBLOCK, opening a pipe would wait for its writer.
    return os.open(path, flags | os.O_NONBLOCK)


def _unpacked(path: Path, raw: bytes) -> bytes:
    if path.name.lower().endswith(".tar"):
        return raw
    with gzip.GzipFile(fileobj=io.BytesIO(raw)) as stream:
        unpacked = stream.read(SIZE_LIMIT + 1)
    if len(unpacked) > SIZE_LIMIT:
        raise PackError(str(path), f"unpacks to more than the limit of {SIZE_LIMIT} bytes")
    return unpacked


def _zip_members(archive: zipfile.ZipFile) -> Iterator[_Member]:
    for info in archive.infolist():
        form = stat.S_IFMT(info.external_attr >> 16)
        if info.flag_bits & _ENCRYPTED:
            kind = "encrypted"
        elif info.compress_type not in _PLAIN_METHODS:
            kind = "neither stored nor deflated"
        elif form not in {0, stat.S_IFREG, stat.S_IFDIR}:
            kind = "a link" if form == stat.S_IFLNK else "a device, pipe or socket"
        else:
            # Not is_dir(), which fails for a name that is empty up to a NUL.
            kind = "folder" if info.orig_filename.endswith("/") or form == stat.S_IFDIR else "file"
        # filename ends at a NUL, orig_filename is what stands there.
        yield _Member(info.orig_filename, kind, info.file_size, partial(_read_zip, archive, info))


def _read_zip(archive: zipfile.ZipFile, info: zipfile.ZipInfo, limit: int) -> bytes:
    with archive.open(info) as stream:
        return stream.read(limit)


def _tar_members(archive: tarfile.TarFile, raw: bytes) -> Iterator[_Member]:
    for info in archive:
        if info.issym() or info.islnk():
            kind = "a link"
        elif info.issparse() or info.type not in _PLAIN_TYPES:
            kind = "a device, pipe or sparse file"
        else:
            kind = "folder" if info.isdir() else "file"
        yield _Member(info.name, kind, info.size, partial(_read_tar, archive, info))
    # tarfile takes a broken header for the end.
    if raw[archive.offset :].strip(b"\x00"):
        raise tarfile.ReadError(f"no header at byte {archive.offset}")


def _read_tar(archive: tarfile.TarFile, info: tarfile.TarInfo, limit: int) -> bytes:
    stream = archive.extractfile(info)
    return b"" if stream is None else stream.read(limit)


def _pick(path: Path, members: Iterable[_Member]) -> PackFiles:
    files = _judge(path, members)
    homes = sorted({parts[:-1] for parts in files if parts[-1] == FILE_NAMES["surface"]})
    if len(homes) > 1:
        raise PackError(str(path), f"several packs: {' and '.join('/'.join(home) or '.' for home in homes)}")
    home = homes[0] if homes else ()
    if len(home) > 1:
        raise PackError(_place(path, "/".join(home)), "a pack lies at the root of an archive or in its one folder")
    return PackFiles(*(_read(path, files, home, file) for file in FILE_NAMES))


def _judge(path: Path, members: Iterable[_Member]) -> dict[tuple[str, ...], _Member]:
    """Return the regular files by their path; raises PackError for the first member that must not be there."""
    files: dict[tuple[str, ...], _Member] = {}
    seen: set[tuple[str, ...]] = set()
    size = 0
    for count, member in enumerate(members, 1):
        if count > MEMBER_LIMIT:
            raise PackError(str(path), f"more than {MEMBER_LIMIT} members")
        parts = _parts(path, member.name)
        if not parts and member.kind == "file":
            raise PackError(_place(path, member.name), "a file without a name")
        if member.kind not in {"file", "folder"}:
            raise PackError(_place(path, member.name), f"is {member.kind}; a pack is regular files")
        size += member.size
        if member.size < 0 or size > SIZE_LIMIT:
            raise PackError(str(path), f"unpacks to more than the limit of {SIZE_LIMIT} bytes")
        # Folded: where a file system does not tell cases apart, one would win.
        folded = tuple(part.casefold() for part in parts)
        if folded in seen:
            raise PackError(_place(path, member.name), "stands twice, or twice but for case")
        seen.add(folded)
        if member.kind == "file":
            files[parts] = member
    return files


def _parts(path: Path, name: str) -> tuple[str, ...]:
    steps = name.split("/")
    if name.startswith("/") or _DRIVE.match(name):
        raise PackError(_place(path, name), "an absolute path")
    if ".." in steps:
        raise PackError(_place(path, name), "leads out of its folder")
    if "\\" in name or not name.isprintable():
        raise PackError(_place(path, name), "no plain path: a backslash or control character")
    return tuple(step for step in steps if step not in {"", "."})


def _read(path: Path, files: dict[tuple[str, ...], _Member], home: tuple[str, ...], file: str) -> bytes:
    place = _place(path, "/".join((*home, FILE_NAMES[file])))
    member = files.get((*home, FILE_NAMES[file]))
    if member is None:
        raise missing_file(file, place)
    raw = member.read(FILE_LIMIT + 1)
    if len(raw) > FILE_LIMIT:
        raise PackParseError(file, place, f"over the limit of {FILE_LIMIT} bytes")
    return raw


def _place(path: Path, name: str) -> str:
    return f"{path}!{name[:_SHOWN]}"
