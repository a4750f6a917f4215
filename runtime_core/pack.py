"""A Harness Pack: three files, read and judged as one (§1.2.pack, DESIGN §3 and §5)."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from runtime_core.errors import LintIssue, PackLintError, PackParseError, UsageError
from runtime_core.lint import lint
from runtime_core.manifest import Manifest, parse_manifest
from runtime_core.pack_file import FILE_LIMIT, FILE_NAMES
from runtime_core.policy import Policy, parse_policy

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from runtime_core.lint_composite import Judged
    from runtime_core.policy import Land
    from runtime_core.schemas import Schema


class PackFiles(NamedTuple):
    """The bytes of the three files of a pack."""

    surface: bytes
    policy: bytes
    harness: bytes


@dataclass(frozen=True, slots=True)
class Trigger:
    """A declared ref with its policy entry (§1.3.trigger)."""

    ref: str
    land: Land
    summary: str
    schema: Schema

    def check(self, data: dict[str, Any]) -> str | None:
        """Return None, or `PATH: REASON` of the first fault of the data."""
        return self.schema.check(data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """A pack that parses and has no lint issue."""

    manifest: Manifest
    policy: Policy
    harness: bytes
    surface_bytes: bytes
    policy_bytes: bytes
    digest: str
    """SHA-256 in hex over the length-prefixed bytes of surface.json, policy.json and HARNESS.md."""
    triggers: Mapping[str, Trigger]
    """The declared refs; built once, because every attempt looks here."""
    plane: str
    """`runtime` or `control` (§1.2.plane)."""

    @property
    def pack_id(self) -> str:
        return self.manifest.id

    @property
    def version(self) -> str:
        return self.manifest.version

    @property
    def title(self) -> str:
        """The title, or the pack id where the manifest has none."""
        return self.manifest.title or self.manifest.id

    @property
    def family(self) -> str | None:
        """The packs that share one consent with it (§1.4.family); None: it stands alone."""
        return self.manifest.family or None


@dataclass(frozen=True, slots=True)
class PackRevision:
    """A pack as installed in a tenant; immutable (DESIGN §3)."""

    tenant: str
    generation: int
    pack: Pack
    allowed_bins: Mapping[str, str]
    """Absolute paths by plain name, as the installing operator allowed them."""


def read_pack(surface: bytes, policy: bytes, harness: bytes, others: Mapping[str, Judged] | None = None) -> Pack:
    """Return the pack; `others` are the installed packs by id, for steps of composites that name them.

    Raises PackParseError of the first file that fails (surface, policy, harness), else PackLintError with every issue
    (§4.4.reject).
    """
    manifest, rules = _parse(surface, policy, harness)
    issues = lint(manifest, rules, others)
    if issues:
        raise PackLintError(manifest.id, issues)
    triggers = {
        declared.ref: Trigger(declared.ref, rules.stimuli[declared.ref].privacy.land, declared.summary, declared.data)
        for declared in manifest.stimulus_triggers
    }
    return Pack(
        manifest=manifest,
        policy=rules,
        harness=harness,
        surface_bytes=surface,
        policy_bytes=policy,
        digest=pack_digest(surface, policy, harness),
        triggers=triggers,
        plane=manifest.plane,
    )


def lint_pack(
    surface: bytes, policy: bytes, harness: bytes, others: Mapping[str, Judged] | None = None
) -> list[LintIssue]:
    """Return every lint issue, empty for a good pack; raises PackParseError where a file fails its parse."""
    manifest, rules = _parse(surface, policy, harness)
    return lint(manifest, rules, others)


def pack_digest(surface: bytes, policy: bytes, harness: bytes) -> str:
    """Return SHA-256 in hex over the length-prefixed bytes of the three files, in this order."""
    return hashlib.sha256(b"".join(b"%d:%s" % (len(part), part) for part in (surface, policy, harness))).hexdigest()


def read_folder(folder: Path) -> PackFiles:
    """Return the three files of a pack folder, following no link out of it.

    Raises UsageError where there is no such folder, PackParseError for a file that is missing, no regular file or over
    1 MiB.
    """
    try:
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(str(folder), error.strerror or "cannot be read", "name a pack folder or archive") from None
    try:
        return PackFiles(*(_read_file(directory, folder, file) for file in FILE_NAMES))
    finally:
        os.close(directory)


def missing_file(file: str, place: str) -> PackParseError:
    """Return the error for a file of a pack that is not there."""
    return PackParseError(file, place, "no such file", f"a pack is {', '.join(FILE_NAMES.values())}")


def parse_issues(files: PackFiles) -> list[LintIssue]:
    """Return all that keeps the files from being parsed, as issues of kind `parse` (§4.0.strict)."""
    issues = []
    for parse, raw in ((parse_manifest, files.surface), (parse_policy, files.policy), (_check_harness, files.harness)):
        try:
            parse(raw)
        except PackParseError as error:
            issues += [LintIssue("parse", place, reason, "4.0.strict") for place, reason in error.faults]
    return issues


def _parse(surface: bytes, policy: bytes, harness: bytes) -> tuple[Manifest, Policy]:
    manifest, rules = parse_manifest(surface), parse_policy(policy)
    _check_harness(harness)
    return manifest, rules


def _check_harness(harness: bytes) -> None:
    if len(harness) > FILE_LIMIT:
        raise PackParseError("harness", FILE_NAMES["harness"], f"{len(harness)} bytes, the limit is {FILE_LIMIT}")
    try:
        harness.decode()
    except UnicodeDecodeError as error:
        place = f"{FILE_NAMES['harness']} (byte {error.start})"
        raise PackParseError("harness", place, "encoding error: not UTF-8", "save it as UTF-8") from None


def _read_file(directory: int, folder: Path, file: str) -> bytes:
    name = FILE_NAMES[file]
    place = str(folder / name)
    try:
        # Without O_NONBLOCK, opening a pipe would wait for its writer.
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise PackParseError(file, place, "not a regular file")
            with os.fdopen(descriptor, "rb", closefd=False) as stream:
                raw = stream.read(FILE_LIMIT + 1)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise missing_file(file, place) from None
    except OSError as error:
        reason = "a link; a pack holds its files itself" if error.errno == errno.ELOOP else error.strerror
        raise PackParseError(file, place, reason or "cannot be read") from None
    if len(raw) > FILE_LIMIT:
        raise PackParseError(file, place, f"over the limit of {FILE_LIMIT} bytes")
    return raw
