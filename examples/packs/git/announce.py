#!/usr/bin/env python3
"""The adapter of the git pack: reads the facts of a commit or checkout from git and announces them.

    announce.py commit.created
    announce.py branch.changed OLD_HEAD NEW_HEAD
    announce.py --check                                    can it announce at all? the installer asks

The hooks call it in the repository. It never fails them: an error is one line on standard error and exit code 0.
What the server cannot take within a second is kept in `.git/sense-spool` and sent with the next announcement.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

TIMEOUT_S = 1.0
"""A commit waits this long for a server that does not answer; one that is down is noticed at once."""
TEXT_LIMIT = 1024
"""Characters of a text in `data`, as the manifest allows."""
SUBJECT_LIMIT = 256


def git(*arguments: str) -> str:
    """Return what git prints, without its last newline. Raises CalledProcessError where it fails."""
    done = subprocess.run(["git", *arguments], stdin=subprocess.DEVNULL, capture_output=True, check=True)
    # Names and messages may be in any encoding; what is not UTF-8 shows as U+FFFD.
    return done.stdout.decode(errors="replace").removesuffix("\n")


def asked(*arguments: str) -> str | None:
    """Return what git prints, or None where it fails: that is its way to say no."""
    try:
        return git(*arguments)
    except subprocess.CalledProcessError:
        return None


def current_branch() -> str | None:
    """Return the branch that is checked out, or None where the head is detached."""
    branch = asked("symbolic-ref", "--quiet", "--short", "HEAD")
    return None if branch is None else shortened(branch)


def commit_created() -> tuple[dict[str, Any], str | None]:
    """Return the data and the subject for the commit at HEAD."""
    # One call: the fields, then the changed files against the first parent (all files of a first commit), after NULs.
    settings = ("-c", "log.showRoot=true", "-c", "log.showSignature=false", "-c", "i18n.logOutputEncoding=UTF-8")
    what = ("-1", "--format=%H%x00%h%x00%an%x00%s%x00", "-m", "--first-parent", "--no-renames", "--name-only", "-z")
    commit, short, author, message, *rest = git(*settings, "log", *what).split("\0")
    branch = current_branch()
    data = {
        "commit": commit,
        "short": short,
        "branch": branch,
        "author": shortened(author),
        "message": shortened(message),
        "files_changed": sum(1 for name in rest if name.strip("\n")),
    }
    return data, branch


def branch_changed(old_head: str, new_head: str) -> tuple[dict[str, Any], str | None] | None:
    """Return the data and the subject for a checkout; None where branch and commit stayed the same."""
    # Empty where the head was detached before, an error where no reflog tells.
    before = asked("rev-parse", "--symbolic-full-name", "@{-1}")
    old_branch = shortened(before.removeprefix("refs/heads/")) if before else None
    new_branch = current_branch()
    if old_head == new_head and before is not None and old_branch == new_branch:
        return None
    data = {
        "old_head": old_head if old_head.strip("0") else None,
        "new_head": new_head,
        "old_branch": old_branch,
        "new_branch": new_branch,
    }
    return data, new_branch


def shortened(text: str) -> str:
    """Return a text that fits into `data`; a cut one ends in an ellipsis."""
    return text if len(text) <= TEXT_LIMIT else f"{text[: TEXT_LIMIT - 1]}…"


def announce(ref: str, data: dict[str, Any], branch: str | None) -> None:
    """Publish under the activation that the repository names, or keep it in the repository's spool."""
    from sense_worker.publisher import Publisher

    folder = git("rev-parse", "--git-common-dir")
    activation = asked("config", "--local", "--get", "sense.activation")
    file = Path(activation) if activation else None
    with Publisher(file, spool=Path(folder, "sense-spool"), timeout_s=TIMEOUT_S, attempts=1) as publisher:
        published = publisher.publish(ref, data, subject=branch[:SUBJECT_LIMIT] if branch else None)
    if published.spooled:
        say(f"{ref} is kept in {folder}/sense-spool until the server takes it")


def check() -> int:
    """Answer 0 where sense_worker is there and SENSE_ACTIVATION_FILE can be used, else 1."""
    try:
        from sense_worker.publisher import Publisher

        Publisher().close()
    except Exception as error:  # noqa: BLE001 - whatever is wrong, the installer wants one line
        say(f"cannot announce: {one_line(error)}")
        return 1
    return 0


def facts(arguments: list[str]) -> tuple[dict[str, Any], str | None] | None:
    """Return data and subject for what the hook says, or None where there is nothing to announce."""
    match arguments:
        case ["commit.created"]:
            return commit_created()
        case ["branch.changed", old_head, new_head]:
            return branch_changed(old_head, new_head)
    raise ValueError("usage: announce.py commit.created | branch.changed OLD_HEAD NEW_HEAD | --check")


def main(arguments: list[str]) -> int:
    """Announce what the hook says; 0 whatever comes of it."""
    if arguments == ["--check"]:
        return check()
    try:
        found = facts(arguments)
        if found is not None:
            announce(arguments[0], *found)
    except Exception as error:  # noqa: BLE001 - git goes on, whatever is wrong here
        say(f"not announced: {one_line(error)}")
    return 0


def one_line(error: Exception) -> str:
    """Return the error without line breaks or control characters."""
    text = str(error) or type(error).__name__
    if isinstance(error, subprocess.CalledProcessError):
        text = f"git {error.cmd[1]}: {error.stderr.decode(errors='replace').strip()}"
    return "".join(c if c.isprintable() else " " for c in text)


def say(text: str) -> None:
    """Tell the person at the terminal."""
    sys.stderr.write(f"sense-worker: {text}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
