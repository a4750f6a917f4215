"""Values typed at a terminal, against a naive reading of what they say."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from runtime_core.errors import UsageError
from sense_worker.cli.values import duration, json_object, json_value, options, overlap, pairs
from tests.fuzz.door import Door, one_line
from tests.fuzz.json_doors import check_value, exact
from tests.fuzz.mutation import ATOMS, chance, written
from tests.fuzz.mutation import json_value as any_json

if TYPE_CHECKING:
    import random

TEXTS = (
    *("90s", "15m", "12h", "30d", "0s", "0", "0d", "000s", "999999999d", "1234567890s", "1.5h", "-1d", " 5m "),
    *("５s", "5 m", "5S"),
    *("", "=", "a=", "a=1", "a:=1", ":=", "a:=", "a::=1", "=a=", "a=b=c", "é=1", "a:=NaN", 'a:={"b":1,"b":2}'),
    *("a b=1", "\n=1"),
    *("@", "@/", "@/no/such", "@~", "@~nobody-here/x", "@" + "k" * 300, "@.", "@\udc80", "@//", "@~/x\n"),
    *("{}", '{"a": 1}', "[]", "null", '{"a": 1', '"\udcff"', "\udc80", "\u202e", "\x1b[31m", "'a'", "{'a': 1}"),
)


def _make(rng: random.Random) -> tuple[list[str], str | None]:
    return [_text(rng) for _ in range(rng.choice((1, 1, 2, 3)))], _text(rng) if chance(rng, 2) else None


def _text(rng: random.Random) -> str:
    kind = rng.randrange(6)
    if kind == 0:
        return written(rng, any_json(rng, 3)).decode("utf-8", "surrogateescape").replace("\0", "")
    if kind == 1:
        return f"{rng.choice(('a', 'b', 'c'))}{rng.choice(('=', ':=', '', '::='))}{rng.choice(ATOMS)}".replace("\0", "")
    text = rng.choice(TEXTS)
    if kind == 2 and text[:1] != "@":
        at = rng.randrange(len(text) + 1)
        text = (
            text[:at] + rng.choice(("=", ":", "0", "s", " ", "\n", "\udc80", "9", '"')) + text[at + rng.randrange(2) :]
        )
    return text


def _told(call: Any, *arguments: Any) -> Any:
    """Return what a call answers, or the refusal."""
    try:
        return call(*arguments)
    except UsageError as error:
        one_line(error)
        return error


def _judge(given: tuple[list[str], str | None]) -> str:
    texts, json_text = given
    words = set()
    for text in texts:
        seconds = _told(duration, text, "--expires")
        match = re.fullmatch("([0-9]{1,9})([smhd])", text.strip(), re.ASCII)
        good = match is not None and int(match[1]) > 0
        assert isinstance(seconds, float) is good
        assert not match or not good or seconds == int(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]
        assert isinstance(_told(overlap, text), float) is (good or text.strip() in {"0", "0s"})
        value = _told(json_value, text, "--data")
        if not isinstance(value, UsageError):
            assert repr(exact(os.fsencode(text))) == repr(value)
            words.add("value")
        taken = _told(json_object, text, "--data")
        assert isinstance(taken, dict | UsageError)
        assert text[:1] == "@" or isinstance(taken, dict) is isinstance(value, dict)
    found = _told(pairs, texts, "--option")
    if isinstance(found, dict):
        assert [f"{name}={held}" for name, held in found.items()] == texts
        words.add("pairs")
    held = _told(options, texts, json_text)
    if isinstance(held, dict):
        for one in (*held, *held.values()):
            check_value(one)
        assert isinstance(found, dict)
        assert len(held) >= len(texts)
        words.add("options")
    return " ".join(sorted(words)) or "refused"


ACCEPTED = frozenset({"value", "pairs", "pairs value", "options pairs", "options pairs value"})
DOORS = {"values": Door("values", _make, _judge, [([text], None) for text in TEXTS], accepted=ACCEPTED)}
