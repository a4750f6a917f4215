"""From valid args to argv: one placeholder is one element, and a value is never an option (DESIGN §5).

No element is ever split and no shell is involved. A value that would read as an option is refused, unless the pack has
bound it (`--message={message}`) or put it behind an end-of-options mark (`--`).
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

from runtime_core.manifest_models import Flag

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from runtime_core.manifest_models import CliElement
    from runtime_core.schemas import Schema

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


def check_paths(schema: Schema, args: Mapping[str, Any], jail: Path) -> None:
    """Refuse an arg of format `path` that leads out of the jail, by name or by link. Raises ArgvFault."""
    document = schema.document if isinstance(schema.document, dict) else {}
    properties = document.get("properties", {})
    inside = os.path.realpath(jail)
    for name, rule in properties.items():
        value = args.get(name)
        if not isinstance(rule, dict) or rule.get("format") != "path" or not isinstance(value, str):
            continue
        real = os.path.realpath(os.path.join(inside, value))  # noqa: PTH118 - pathlib keeps `..` of a link's target
        if real != inside and not real.startswith(inside + os.sep):
            raise ArgvFault(f"/{name}: leads out of the working folder")


def _filled(part: str, args: Mapping[str, Any], *, behind_mark: bool) -> str:
    match = PLACEHOLDER.match(part)
    for name in names(part):
        if name not in args:
            raise ArgvFault(f"/{name}: is missing, and the command line needs it")
    element = PLACEHOLDER.sub(lambda found: _text(args[found[1]]), part)
    if match is not None and element.startswith("-") and not behind_mark:
        raise ArgvFault(f"/{match[1]}: would read as an option")
    if len(os.fsencode(element)) > ELEMENT_LIMIT:
        raise ArgvFault(f"/{names(part)[0] if names(part) else 'cli'}: over {ELEMENT_LIMIT} bytes")
    return element


def _text(value: Any) -> str:
    """Return a value as one text: text as it is, everything else as JSON writes it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
