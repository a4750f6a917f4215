"""How a command ends when it fails: one line on standard error, and an exit code.

0: done.
1: refused or failed: a denial, a missing or conflicting row, lint issues, an unreachable server, a bad health.
2: cannot be meant: wrong arguments, malformed values, a setting that stops the start, an unreadable file.
130: interrupted.
"""

from __future__ import annotations

import errno
import sys
import traceback
from typing import TYPE_CHECKING

import typer

from runtime_core.errors import (
    Conflict,
    DoorError,
    HcpError,
    NotFound,
    PackError,
    PackLintError,
    SettingsError,
    UsageError,
    bounded,
    printable,
)

if TYPE_CHECKING:
    from typing import TextIO

OF_A_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF)
"""What a write into an open file raises, which names no file: standard output, as everything else is opened by name."""

FAILED = 1
MISUSED = 2
INTERRUPTED = 130


def exit_code(error: BaseException) -> int:
    """Return the exit code of a command that ended with `error`."""
    if isinstance(error, (NotFound, Conflict)):
        return FAILED  # well-formed input that the state of the tenant does not allow
    if isinstance(error, PackLintError):
        return FAILED
    if isinstance(error, (UsageError, SettingsError, DoorError, PackError, UnicodeEncodeError)):
        return MISUSED
    if isinstance(error, typer.TyperException):
        return error.exit_code
    return FAILED


def line(error: BaseException) -> str:
    """Return the one line that tells a person what happened: the place, the reason, the way out."""
    if isinstance(error, HcpError):
        return str(error)
    return printable(bounded(_other_line(error)))


def _other_line(error: BaseException) -> str:
    if isinstance(error, typer.TyperException):
        return _usage_line(error)
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError) and error.errno in OF_A_WRITE:
        return f"output: {error.strerror} (what the command did stands; what it had to print is lost)"
    if isinstance(error, UnicodeEncodeError):  # bytes of an argument that are no text stand in it as lone surrogates
        return f"{error.object[:100]!r}: is not UTF-8 (write it in UTF-8)"
    # An exception nobody expected: its class and first line, never a traceback unasked (it may hold other people's
    # data), and how to get one.
    first = (str(error).strip().splitlines() or [""])[0]
    detail = f"{type(error).__name__}: {first}" if first else type(error).__name__
    return f"unexpected {detail} (run it again as `sense-worker --debug …` for the traceback)"


def report(error: BaseException, *, debug: bool, stream: TextIO | None = None) -> int:
    """Print `error: LINE` (before it the traceback, when asked for) and return the exit code."""
    stream = sys.stderr if stream is None else stream
    if debug:
        traceback.print_exception(error, file=stream)
    text = line(error)
    if text:  # a group without a command has printed its help: that says it
        stream.write(f"error: {text}\n")
    return exit_code(error)


def _usage_line(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    place = "sense-worker" if context is None else context.command_path
    reason = " ".join(error.format_message().split()).rstrip(".")
    if not reason:
        return ""
    return f"{place}: {reason} (see `{place} --help`)"
