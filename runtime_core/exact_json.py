"""The exact walk over one JSON document (RFC 8259): no recursion, and a place for every fault (DESIGN §4).

`runtime_core.strict_json` sends it the rare suspect and whatever the fast parser refused.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

DEPTH_LIMIT = 64
"""Objects and lists inside each other, the outermost counted."""
INT_MIN = -(1 << 63)
INT_MAX = (1 << 63) - 1

_INT_DIGITS = 20
"""Characters of the longest 64 bit integer with its sign: a longer one is refused without being computed."""
_POINTER_LIMIT = 200
_SHOWN = 60
"""Characters of a key or value that are shown."""

_Container = dict[str, object] | list[object]

_IS_TEXT, _IS_NUMBER, _IS_PUNCTUATION, _IS_WORD = 1, 2, 5, 6
_SPACE = r"[ \t\n\r]*+"
_PLAIN = r'[^"\\\x00-\x1f]*+'
_TEXT = rf'{_PLAIN}(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{{4}}){_PLAIN})*+'
# Possessive, so that a fault at the end of a long text is found in one pass. Group 1 text, 2 number (3, 4: what makes
# it a float), 5 punctuation, 6 word.
_TOKEN = re.compile(
    rf'{_SPACE}(?:"({_TEXT})"|(-?(?:0|[1-9][0-9]*+)(\.[0-9]++)?([eE][+-]?[0-9]++)?)|([\[\]{{}}:,])|(true|false|null))'
)
_NEXT = re.compile(_SPACE)
_BROKEN_TEXT = re.compile(_TEXT)
_NO_NUMBER = re.compile(r"[+-]?(?:nan|inf(?:inity)?)\b", re.IGNORECASE)
_ESCAPE = re.compile(r"\\(?:u([dD][89abAB]..)\\u([dD][c-fC-F]..)|u(....)|(.))")
_SIMPLE = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WORDS = {"true": True, "false": False, "null": None}
_MARKS = (
    (codecs.BOM_UTF8, "UTF-8"),
    (codecs.BOM_UTF32_LE, "UTF-32"),  # begins like the UTF-16 mark, so it stands before it
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)


class Fault(Exception):
    """Why a document is refused, and where: a JSON pointer with line and column, or a byte; empty for the whole."""

    def __init__(self, place: str, reason: str, way_out: str = "") -> None:
        super().__init__(place, reason, way_out)
        self.place = place
        self.reason = reason
        self.way_out = way_out


def walk(raw: bytes) -> object:
    """Return the value of the document; raises Fault."""
    return _Walk(_decode(raw)).document()


def pointer(steps: Sequence[str | int]) -> str:
    """Return the JSON pointer (RFC 6901) of a place, cut to 200 characters; empty for the whole document."""
    text = "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in steps)
    return text if len(text) <= _POINTER_LIMIT else text[:_POINTER_LIMIT] + "…"


def shown(text: str) -> str:
    """Return a key or text value in quotes, escaped and cut, for a refusal."""
    return json.dumps(text if len(text) <= _SHOWN else text[:_SHOWN] + "…", ensure_ascii=False)


def _decode(raw: bytes) -> str:
    for mark, encoding in _MARKS:
        if raw.startswith(mark):
            if encoding == "UTF-8":
                raise Fault("", "begins with a UTF-8 byte-order mark (EF BB BF)", "save it without the mark")
            raise Fault("", f"encoding error: {encoding}, by its byte-order mark", "save it as UTF-8")
    # ASCII text in UTF-16 or UTF-32 is valid UTF-8 with a NUL among its first two bytes; no JSON begins so.
    if b"\x00" in raw[:2]:
        raise Fault("", "encoding error: UTF-16 or UTF-32, by the NUL among its first bytes", "save it as UTF-8")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        reason = f"encoding error: not UTF-8, {error.reason} 0x{raw[error.start]:02x}"
        raise Fault(f"(byte {error.start})", reason, "save it as UTF-8") from None


class _Walk:
    """One pass over one document; `_open` holds the containers around `_at`, `_path` the key or index in each."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._open: list[_Container] = []
        self._path: list[str | int] = []

    def document(self) -> object:
        root = self._value(self._token())
        while self._open:
            container = self._open[-1]
            if isinstance(container, dict):
                self._members(container)
            else:
                self._items(container)
        if self._skip() < len(self._text):
            self._fail("text follows the end of the document")
        return root

    def _token(self) -> re.Match[str]:
        """Read one token, passing the white space before it."""
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            self._fail_at_token()
        self._at = match.end()
        return match

    def _value(self, token: re.Match[str]) -> object:
        """Return a scalar, or open a container and leave its members to the loop in `document`."""
        group = token.lastindex
        if group == _IS_TEXT:
            return self._text_of(token)
        if group == _IS_NUMBER:
            return self._number(token)
        if group == _IS_WORD:
            return _WORDS[token[_IS_WORD]]
        if token[_IS_PUNCTUATION] not in {"{", "["}:
            self._fail(f"a value is expected, not {shown(token[_IS_PUNCTUATION])}", self._at - 1)
        if len(self._open) == DEPTH_LIMIT:
            self._fail(f"nested deeper than {DEPTH_LIMIT} levels", self._at - 1)
        container: _Container = {} if token[_IS_PUNCTUATION] == "{" else []
        self._open.append(container)
        return container

    def _items(self, items: list[object]) -> None:
        """Read items until one opens a container or the list ends."""
        depth = len(self._open)
        while (token := self._begin("]", more=bool(items))) is not None:
            self._path.append(len(items))
            items.append(self._value(token))
            if len(self._open) > depth:
                return
            self._path.pop()

    def _members(self, members: dict[str, object]) -> None:
        """Read members until one opens a container or the object ends."""
        depth = len(self._open)
        while (token := self._begin("}", more=bool(members))) is not None:
            if token.lastindex != _IS_TEXT:
                self._fail("a key in double quotes is expected", token.end() - len(token[0].lstrip()))
            key = self._text_of(token)
            self._path.append(key)
            if key in members:
                self._fail(f"the key {shown(key)} stands twice", token.start(_IS_TEXT) - 1)
            if self._token()[0][-1:] != ":":
                self._fail('":" is expected', token.end())
            members[key] = self._value(self._token())
            if len(self._open) > depth:
                return
            self._path.pop()

    def _begin(self, closer: str, *, more: bool) -> re.Match[str] | None:
        """Return the first token of the next member, past its comma; None where the container ends."""
        token = self._token()
        punctuation = token[_IS_PUNCTUATION]
        if punctuation == closer:
            self._open.pop()
            if self._path:
                self._path.pop()
            return None
        if not more:
            return token
        if punctuation != ",":
            self._fail(f'"," or "{closer}" is expected', token.end() - len(token[0].lstrip()))
        return self._token()

    def _text_of(self, token: re.Match[str]) -> str:
        text = token[_IS_TEXT]
        if "\\" not in text:
            return text
        start = token.start(_IS_TEXT)
        return _ESCAPE.sub(lambda escape: self._unescape(escape, start), text)

    def _unescape(self, escape: re.Match[str], start: int) -> str:
        high, low, single, simple = escape.groups()
        if simple:
            return _SIMPLE[simple]
        if high:
            return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
        code = int(single, 16)
        if not code:
            self._fail("NUL (\\u0000) in text", start + escape.start())
        if 0xD800 <= code <= 0xDFFF:  # noqa: PLR2004 - the range of the surrogates
            self._fail(f"lone surrogate \\u{single}", start + escape.start())
        return chr(code)

    def _number(self, token: re.Match[str]) -> int | float:
        text, fraction, exponent = token.group(2, 3, 4)
        if fraction is None and exponent is None:
            value = int(text) if len(text) <= _INT_DIGITS else INT_MAX + 1
            if INT_MIN <= value <= INT_MAX:
                return value
            self._fail(f"an integer of {len(text.lstrip('-'))} digits: outside signed 64 bit", token.start(2))
        number = float(text)
        if math.isinf(number):
            self._fail(f"a number that overflows 64 bit floating point: {text[:_SHOWN]}", token.start(2))
        return number

    def _skip(self) -> int:
        match = _NEXT.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return self._at

    def _fail_at_token(self) -> NoReturn:
        at = self._skip()
        char = self._text[at : at + 1]
        if not char:
            self._fail("the document ends too early")
        if char == '"':
            self._fail_in_text(at + 1)
        word = _NO_NUMBER.match(self._text, at)
        self._fail(f"'{word[0]}' is no JSON number" if word else f"{shown(char)} is not expected")

    def _fail_in_text(self, start: int) -> NoReturn:
        match = _BROKEN_TEXT.match(self._text, start)
        at = match.end() if match else start
        char = self._text[at : at + 1]
        if not char:
            self._fail("text without its closing quote", start - 1)
        if char == "\\":
            self._fail(f"no JSON escape: {shown(self._text[at : at + 6])}", at)
        name = "NUL" if char == "\x00" else f"the control character U+{ord(char):04X}"
        self._fail(f"{name} in text", at)

    def _fail(self, reason: str, at: int | None = None) -> NoReturn:
        at = self._at if at is None else at
        steps = list(self._path)
        if len(steps) < len(self._open) and isinstance(items := self._open[-1], list):
            steps.append(len(items))  # the item that could not be read
        line = self._text.count("\n", 0, at) + 1
        column = at - self._text.rfind("\n", 0, at)
        where = f"(line {line}, column {column})"
        raise Fault(f"{pointer(steps)} {where}".lstrip(), reason)
