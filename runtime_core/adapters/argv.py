"""From valid args to argv: one placeholder is one element, and a value is never an option (DESIGN §5).

No element is ever split and no shell is involved. A value that would read as an option is refused, unless the pack has
bound it (`--message={message}`) or put it behind an end-of-options mark (`--`).
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from runtime_core.manifest_models import Flag

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runtime_core.manifest_models import CliElement

PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.-]*)\}", re.ASCII)
ELEMENT_LIMIT = 128 * 1024 - 1
"""Bytes of one element: Linux's MAX_ARG_STRLEN, its end mark taken off."""
_END_OF_OPTIONS = "--"


class ArgvFault(Exception):
    """Why args cannot become argv: `/NAME: REASON`, without the value."""


def render(cli: Sequence[CliElement], args: Mapping[str, Any], *, confirmed: bool) -> list[str]:
    """Return the argv after the binary. `confirmed` stands for the args that belong to the runtime.

    Raises ArgvFault.
    """
    argv: list[str] = []
    for element in cli:
        if isinstance(element, Flag):
            said = confirmed if element.when in ("confirm", "apply") else args.get(element.when) is True
            if said and not element.host:
                argv.append(element.flag)
            continue
        parts = (element,) if isinstance(element, str) else element
        if not isinstance(element, str) and any(name not in args for part in parts for name in names(part)):
            continue
        for part in parts:
            argv.append(_filled(part, args, behind_mark=_END_OF_OPTIONS in argv))
    return argv


def names(part: str) -> list[str]:
    """Return the args that an element names."""
    return PLACEHOLDER.findall(part)


def _filled(part: str, args: Mapping[str, Any], *, behind_mark: bool) -> str:
    named = names(part)
    for name in named:
        if name not in args:
            raise ArgvFault(f"/{name}: is missing, and the command line needs it")
    element = PLACEHOLDER.sub(lambda found: _text(args[found[1]]), part)
    head = PLACEHOLDER.split(part, maxsplit=1)[0]
    if named and not behind_mark and _reads_as_option(head, element, args[named[0]]):
        raise ArgvFault(f"/{named[0]}: would read as an option")
    place = named[0] if named else "cli"
    if "\0" in element:
        raise ArgvFault(f"/{place}: holds a NUL")
    try:
        size = len(element.encode())
    except UnicodeEncodeError:
        raise ArgvFault(f"/{place}: holds half a character") from None
    if size > ELEMENT_LIMIT:
        raise ArgvFault(f"/{place}: over {ELEMENT_LIMIT} bytes")
    return element


def _reads_as_option(head: str, element: str, first: Any) -> bool:
    """Tell whether a value decides which option an element is: nothing but dashes stands before it.

    `-{limit}` of a whole number is a limit, as in `git log -5`.
    """
    if not element.startswith("-") or head.strip("-"):
        return False
    return not (head == "-" and type(first) is int and first >= 0)


def _text(value: Any) -> str:
    """Return a value as one text: text as it is, everything else as JSON writes it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
