"""Generated inputs: JSON that is hostile in every way a door must survive, and good documents with something changed.

Everything is drawn from one `random.Random`, so that a seed is an input. Hypothesis shrinks better and makes some
hundreds of inputs a second; these make tens of thousands.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

ATOMS = (
    *("NaN", "Infinity", "-Infinity", "nan", "-NaN", "1e999", "-1e999", "0e999", "1e-999", "1e308", "1.8e308"),
    *("-0", "-0.0"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809"),
    *("1" * 40, "1" * 4301),
    *("1.0", "1.", ".5", "01", "+1", "-", "1e", "1E+2", "0x10", "1_000", "True", "None", "nul", "undefined"),
    *("'a'", "9" * 310),
    *('"\\u0000"', '"\\\\u0000"', '"\\\\\\u0000"', '"\\ud800"', '"\\udc00x"', '"\\ud83d\\ude00"', '"\\ud83d\\ud83d"'),
    *('"\\x41"', '"\\u00g0"', '"\\"', '"', '"\x00"', '"\x1f"', '"\n"', '"\x7f\x85\u2028"', '"\ufeff"', '"\ufffe😀é"'),
    *('"' + "k" * 300 + '"', '"\u0430dmin"', '"e\u0301"', "", "/*c*/1", "1//c\n", "[1,]", '{"a":1,}', "{,}"),
    *("[", "}", "{}{}"),
    *("[" * 62 + "]" * 62, "[" * 64 + "]" * 64, "[" * 65 + "]" * 65, "[" * 300, '{"a":' * 64 + "1" + "}" * 64),
    *('{"a":' * 65 + "1" + "}" * 65, '{"a":1,"a":1}', '{"a":1,"\\u0061":2}', '{"":0,"":0}', '{"a":1,"A":1}', "{1:2}"),
)
"""Texts that stand where a value stands; few of them are one."""
TOKENS = (
    *(b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\x00", b"\xff", b"\xc0\x80"),
    *(b"\xed\xa0\x80", b"\xf4\x90\x80\x80"),
    *(b"\xef\xbb\xbf", b"\xff\xfe", b"\xc3", b"\x80", b"\n", b"\r\n", b"\t", b"\v", b"\xc2\xa0"),
    *(b"\xe2\x80\xa8", b"NaN"),
    *(b"null", b"true", b"1.0", b"1e999", b"\\u0000", b"\\ud800", b"//", b"..", b"/", b"0", b"-"),
    *(b"9" * 30, b"\x1b[31m"),
)
SCALARS: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 1.0, 0.5, -0.0, 1e308, 2**63 - 1, -(2**63), 65, "", "x", "true", "1", " ", "*"),
    *("a" * 129, "k" * 300, "É", "\u0430", "x\ny", "../x", "/x", "a/b", "$ref", "#", "\x7f", "\u202e", "read", "write"),
    *("personal", "brain", "local", [], {}, [1], {"a": 1}, [[]], [None], {"": None}, ["x", "x"]),
)
_MARK = "\ue000"
_TWICE = "\ue001"
_WORDS = ("a", "b", "A", "", "é", "a/b", "~", "\\", "\x7f", "key", "ref", "data", "0", "😀", "\u0000", "\ud800")
_HOW_OFTEN = (1, 1, 1, 1, 2, 2, 3, 6)


def chance(rng: random.Random, of: int) -> bool:
    """Tell, one time in `of`, that it happens."""
    return rng.random() * of < 1


def json_value(rng: random.Random, levels: int = 4) -> Any:
    """Return a value of any shape, atoms and keys that stand twice among its parts; `written` makes its text."""
    kind = rng.randrange(8 if levels else 5)
    if kind == 0:
        return f"{_MARK}{rng.randrange(len(ATOMS))}{_MARK}"
    if kind == 1:
        return rng.choice((rng.randrange(-10, 10), rng.getrandbits(rng.randrange(1, 70)), -rng.getrandbits(63)))
    if kind == 2:
        return rng.choice((rng.random(), rng.uniform(-1e300, 1e300), rng.random() * 10.0 ** rng.randrange(-320, 300)))
    if kind == 3:
        return "".join(rng.choices(_WORDS, k=rng.randrange(6)))
    if kind == 4:
        return drawn(rng, SCALARS)
    if kind == 5:
        return [json_value(rng, levels - 1) for _ in range(rng.randrange(4))]
    found = {rng.choice(_WORDS): json_value(rng, levels - 1) for _ in range(rng.randrange(5))}
    if found and chance(rng, 8):
        found[_TWICE + next(iter(found))] = json_value(rng, 0)
    return found


def written(rng: random.Random, value: Any) -> bytes:
    """Return the text of a value as one of many programs would write it."""
    ascii_only, indent = chance(rng, 2), rng.choice((None, None, None, 1))
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    if ascii_only:
        text = text.replace("\\ue000", _MARK).replace("\\ue001", _TWICE)
    if _MARK in text:
        parts = text.split(f'"{_MARK}')
        ends = [part.partition(f'{_MARK}"') for part in parts[1:]]
        text = parts[0] + "".join(
            f"{ATOMS[int(number)]}{rest}" if number.isdecimal() else f'"{number}{rest}' for number, _, rest in ends
        )
    return text.replace(_TWICE, "").encode("utf-8", "surrogatepass")


def drawn(rng: random.Random, values: Sequence[Any]) -> Any:
    """Return a copy of one of the values: what is made of it must not change what another seed draws."""
    value = rng.choice(values)
    return json.loads(json.dumps(value)) if isinstance(value, dict | list) else value


def with_changes(rng: random.Random, document: Any, words: Sequence[str], parts: Sequence[Any]) -> Any:
    """Change a document that is its caller's own at some of its places, with a vocabulary of keys and values."""
    for _ in range(rng.choice(_HOW_OFTEN)):
        holder, key = _place(rng, document)
        if holder is None:
            return document
        _change(rng, holder, key, words, parts)
    return document


def with_bytes(rng: random.Random, raw: bytes) -> bytes:
    """Return the bytes with some flipped, put in, taken out, doubled, moved or written in another encoding."""
    found = bytearray(raw)
    for _ in range(rng.choice(_HOW_OFTEN)):
        at = rng.randrange(len(found) + 1)
        to = min(len(found), at + rng.choice((1, 1, 2, 4, 8, 64, 512)))
        kind = rng.randrange(8)
        if kind == 0 and at < len(found):
            found[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del found[at:to]
        elif kind == 2:
            found[at:at] = found[at:to]
        elif kind == 3:
            found[at:at] = rng.choice(TOKENS)
        elif kind == 4:
            found[at:to] = rng.choice(TOKENS)
        elif kind == 5:
            found[at:to] = rng.randbytes(to - at)
        elif kind == 6:
            moved = found[at:to]
            del found[at:to]
            place = rng.randrange(len(found) + 1)
            found[place:place] = moved
        elif chance(rng, 4):
            found = bytearray(_otherwise(rng, bytes(found)))
    return bytes(found)


def json_bytes(rng: random.Random, good: Sequence[str], words: Sequence[str], parts: Sequence[Any]) -> bytes:
    """Return a document: mostly a good one changed in its structure, else in its bytes, unchanged, or any JSON."""
    kind = rng.randrange(16)
    if kind == 0:
        return written(rng, json_value(rng))
    text = rng.choice(good)
    if kind == 1:
        return text.encode()
    if kind <= 4:
        return with_bytes(rng, text.encode())
    return written(rng, with_changes(rng, json.loads(text), words, parts))


def _otherwise(rng: random.Random, raw: bytes) -> bytes:
    kind = rng.randrange(5)
    if kind == 0:
        return b"\xef\xbb\xbf" + raw
    if kind == 1:
        return raw.decode("utf-8", "replace").encode(
            rng.choice(("utf-16", "utf-16-le", "utf-32-be", "latin-1")), "replace"
        )
    if kind == 2:
        return raw[: rng.randrange(len(raw) + 1)]
    if kind == 3:
        return raw + raw
    return b"[" * 70 + raw


def _place(rng: random.Random, document: Any) -> tuple[Any, Any]:
    """Return a container and one of its keys, deeper places as likely as those near the top."""
    holder, key, value = None, None, document
    while isinstance(value, dict | list) and value and not (holder is not None and chance(rng, 4)):
        holder = value
        key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
        value = value[key]
    return holder, key


def _change(rng: random.Random, holder: Any, key: Any, words: Sequence[str], parts: Sequence[Any]) -> None:
    kind = rng.randrange(10)
    if kind == 0:
        del holder[key]
    elif kind == 1:
        holder[key] = f"{_MARK}{rng.randrange(len(ATOMS))}{_MARK}"
    elif kind == 2:
        holder[key] = drawn(rng, SCALARS)
    elif kind <= 4:
        holder[key] = drawn(rng, parts) if parts else json_value(rng, 2)
    elif kind == 5:
        holder[key] = rng.choice(([holder[key]], {rng.choice(words): holder[key]}, [holder[key], holder[key]]))
    elif kind == 6 and isinstance(holder[key], str):
        holder[key] = rng.choice((holder[key].upper(), holder[key] + "x", holder[key][:-1], rng.choice(words)))
    elif isinstance(holder, list):
        holder.insert(rng.randrange(len(holder) + 1), rng.choice((holder[key], drawn(rng, parts or SCALARS))))
    elif kind == 7:
        other = rng.choice(list(holder))
        holder[key], holder[other] = holder[other], holder[key]
    elif kind == 8:
        name = rng.choice((rng.choice(words), f"{_TWICE}{key}", key.swapcase()))
        holder[name] = rng.choice((holder[key], drawn(rng, SCALARS)))
    else:
        holder[rng.choice(words)] = holder.pop(key)
