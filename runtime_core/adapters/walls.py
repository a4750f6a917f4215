"""The walls around a wrapped binary: bubblewrap where it works here, and what stands in any case (§1.5.sandbox)."""

from __future__ import annotations

import functools
import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runtime_core.adapters.sandbox import Place

PATH = "/usr/local/bin:/usr/bin:/bin"
_ALONE = ("--unshare-user-try", "--unshare-pid", "--unshare-ipc", "--die-with-parent")
"""No new session: there is no terminal to guard, and the tool stays in the process group that its launcher can stop."""
_TREE = ("--cap-drop", "ALL", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
_EMPTIED = ("/tmp", "/run")  # noqa: S108 - the tool's own: sockets of agents and of services stand here
_RESOLVER = "/run/systemd/resolve"
"""Where /etc/resolv.conf may point to: a tool that may use the network finds names."""
_CREDENTIALS = (".aws", ".azure", ".config", ".docker", ".git-credentials", ".gnupg", ".kube", ".netrc", ".ssh")
"""What is hidden of a home folder in which the binary itself stands, and so cannot be hidden whole."""
_SYSTEM = frozenset({"bin", "boot", "dev", "etc", "lib", "lib64", "proc", "sbin", "sys", "usr"})
_SHEBANG_LIMIT = 256
"""Bytes that Linux reads of a script's first line."""
_PROBE_S = 10
_REASON_LIMIT = 200


class Wall(NamedTuple):
    """One wall, whether it is in force on this host, and why not."""

    name: str
    in_force: bool
    reason: str = ""


class Probe(NamedTuple):
    """Where bubblewrap is, or why it cannot be used here."""

    path: str | None
    reason: str = ""


@functools.cache
def bubblewrap() -> Probe:
    """Look once a process whether bubblewrap works here, with every wall that a run gets."""
    path = shutil.which("bwrap", path=PATH)
    if path is None:
        return Probe(None, "bwrap is not installed")
    argv = [path, *_ALONE, *_TREE, *_emptied(), "--", "/bin/true"]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=_PROBE_S, check=False, env={"PATH": PATH})
    except subprocess.TimeoutExpired:
        return Probe(None, f"bwrap did not answer within {_PROBE_S} s")
    except OSError as error:
        return Probe(None, f"bwrap: {error.strerror}")
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return Probe(None, said[0][:_REASON_LIMIT] if said else f"bwrap exited {done.returncode}")
    return Probe(path)


def walled(binary: str, argv: Sequence[str], place: Place) -> list[str]:
    """Return the argv of bubblewrap around a binary.

    The file system is read-only but for the two folders of the run. Empty are /tmp, /run, the hidden folders and the
    home of the account, so that no credential in it is ambient.
    """
    walls = [*_ALONE, *_TREE, *_emptied()]
    needed = _needed(binary)
    covered = list(_covered(needed, place.hidden))
    for one in covered:
        walls += ["--tmpfs", str(one)] if one.is_dir() else ["--ro-bind", os.devnull, str(one)]
    for one in needed:
        if any(one.is_relative_to(emptied) for emptied in _EMPTIED):
            walls += ["--ro-bind", str(one), str(one)]
    for one in dict.fromkeys((place.home, place.cwd)):
        walls += ["--bind", str(one), str(one)]
    named = place.named
    # A link that stands in what is covered is not there any more.
    if (
        named is not None
        and named != place.cwd
        and any(named.is_relative_to(one) for one in (*covered, *map(Path, _EMPTIED)))
    ):
        walls += ["--bind", str(place.cwd), str(named)]
    return ["bwrap", *walls, "--chdir", str(place.cwd), "--", binary, *argv]


def posture_report() -> list[Wall]:
    """Return the walls around wrapped binaries of the posture `sandbox` on this host, for `doctor`."""
    probe = bubblewrap()
    linux = sys.platform == "linux"
    no_linux = "" if linux else "wrapped binaries need Linux"
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    return [
        Wall("own process group, whole tree ended", linux, no_linux),
        Wall("limits on CPU time, memory, files, processes, output", linux, no_linux),
        Wall("environment of declared names only", linux, no_linux),
        Wall("no new privileges", linux, no_linux),
        Wall("file system read-only, processes and credentials hidden (bubblewrap)", bool(probe.path), probe.reason),
        Wall("worker without root's powers", not root, "the worker runs as root; so do its tools" if root else ""),
    ]


def _emptied() -> Iterator[str]:
    for place in _EMPTIED:
        yield from ("--tmpfs", place)
    yield from ("--ro-bind-try", _RESOLVER, _RESOLVER)


def _needed(binary: str) -> set[Path]:
    """Return the places of a binary and, where it is a script, of its interpreter: as named, and where links lead."""
    found = [binary]
    first = _first_line(binary)
    words = first[2:].decode("utf-8", "replace").split() if first.startswith(b"#!") else []
    found += words[:1]
    if len(words) > 1 and words[0].endswith("/env") and (named := shutil.which(words[1], path=PATH)):
        found.append(named)
    return {Path(place) for one in found for place in (one, os.path.realpath(one))}


def _first_line(place: str) -> bytes:
    """Return as much of a file's first line as Linux reads; nothing where it cannot be read. Waits for no pipe."""
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        return os.read(descriptor, _SHEBANG_LIMIT).partition(b"\n")[0]
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _covered(needed: set[Path], hidden: Sequence[Path]) -> Iterator[Path]:
    """Yield what a tool must not see and what is there; never a folder that it needs."""
    for folder in (*_homes(), *hidden):
        real = Path(os.path.realpath(folder))
        if real == Path("/") or not real.exists():
            continue
        # The home of a system account may be a folder that every tool needs.
        if real.parts[1] in _SYSTEM or any(place.is_relative_to(real) for place in needed):
            yield from (real / name for name in _CREDENTIALS if (real / name).exists())
        else:
            yield real


def _homes() -> Iterator[Path]:
    """Yield the home folders of the account: the one it was told, and the one that tools like ssh look up."""
    if "HOME" in os.environ:
        yield Path(os.environ["HOME"])
    try:
        yield Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return
