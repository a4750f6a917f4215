"""Calling code that may hang: in a thread of its own, and waited for only so long (C52)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Found = TypeVar("Found")


class Late(Exception):
    """A call that did not return in time; its thread stays."""


def within(seconds: float, call: Callable[[], Found], name: str) -> Found:
    """Return what a call returns in a thread called `name`; raises what it raises, and Late after `seconds`.

    At the interpreter's end no thread can be started any more: then it is called in this one, without a bound.
    """
    answers: list[Found] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(call())
        except BaseException as error:  # noqa: BLE001 - raised again by whoever waits, SystemExit too
            errors.append(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        run()
    else:
        thread.join(seconds)
    for error in errors:
        raise error
    if not answers:
        raise Late
    return answers[0]
