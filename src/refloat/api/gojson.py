# SPDX-License-Identifier: Apache-2.0
"""JSON and base64 as Go reads them: what it accepts, and its words for the rest.

Only bodies that the fast parser refused, or that look odd, come here. Python's
own parser then does the work; what it refuses is scanned once more for the
message that Go would give. Types are not looked at here: see `unmarshal.py`.
"""

import base64
import codecs
import json
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from refloat.api import fields

# Go's limit. Python gives up long before, and then so do we.
MAX_DEPTH = 10_000

_SURROGATE = re.compile("[\ud800-\udfff]")
_SPACE = re.compile(rb"[ \t\r\n]*")
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_PLAIN = re.compile(rb'[^"\\\x00-\x1f]*')
_ESCAPE = re.compile(rb'\\(?:[bfnrt\\/"]|u[0-9a-fA-F]{4})')
_HEX = b"0123456789abcdefABCDEF"


class SyntaxProblem(ValueError):
    """The body is not JSON; the text is Go's."""


class Pairs(list[tuple[str, Any]]):
    """The members of an object in the order of the body, repeated ones too."""


class Number(str):
    """A number as it was written."""

    __slots__ = ()


def parse(body: bytes) -> Any:
    """The value, with `Pairs` for objects and `Number` for numbers."""
    try:
        return json.loads(
            body.decode(errors=ONE_FOR_EACH_BYTE),
            object_pairs_hook=_pairs,
            parse_int=Number,
            parse_float=Number,
            parse_constant=_no_constant,
        )
    except (ValueError, RecursionError):
        raise SyntaxProblem(_Scanner(body).problem()) from None


def _no_constant(name: str) -> Any:
    """Python reads NaN and Infinity; JSON has none."""
    raise ValueError(name)


def _pairs(pairs: list[tuple[str, Any]]) -> Pairs:
    return Pairs((text(key), value) for key, value in pairs)


def text(value: str) -> str:
    """Half of a surrogate pair becomes the replacement character."""
    return value if value.isascii() else _SURROGATE.sub("\ufffd", value)


def _replace_each_byte(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "\ufffd" * (error.end - error.start), error.end


ONE_FOR_EACH_BYTE = "refloat.one-for-each-byte"
codecs.register_error(ONE_FOR_EACH_BYTE, _replace_each_byte)


def members(value: Any) -> Iterable[tuple[str, Any]] | None:
    """The members of an object; None for anything else."""
    if isinstance(value, Pairs):
        return value
    return value.items() if isinstance(value, dict) else None


def kind(value: Any) -> str:
    """What Go calls a value in its messages."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float | Number):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, dict | Pairs) else "array"


def plain(value: Any) -> Any:
    """The same value as dictionaries and numbers; of repeated members the last."""
    if isinstance(value, Pairs):
        return {key: plain(item) for key, item in value}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, Number):
        return _number(value)
    return text(value) if isinstance(value, str) else value


def _number(written: Number) -> int | float:
    try:
        return int(written)
    except ValueError:
        return float(written)


_Step: TypeAlias = Callable[[], "_Step | None"]


class _Scanner:
    """Finds the first byte that does not fit, and says why as Go does.

    A step reads a piece and gives the next step: nesting costs no recursion.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0
        self._open: list[str] = []  # the brackets that are not closed yet

    def problem(self) -> str:
        step: _Step | None = self._value
        try:
            while step is not None:
                step = step()
        except SyntaxProblem as found:
            return str(found)
        # Go would have read it: only its nesting was too deep for Python.
        return "exceeded max depth"

    def _peek(self) -> str:
        """The next byte that is no space."""
        found = _SPACE.match(self._body, self._at)
        assert found is not None
        self._at = found.end()
        return self._byte()

    def _byte(self) -> str:
        if self._at >= len(self._body):
            raise SyntaxProblem("unexpected end of JSON input")
        return chr(self._body[self._at])

    def _inner(self) -> str:
        """The next byte within a word, number or escape; Go sees a space at the end."""
        return chr(self._body[self._at]) if self._at < len(self._body) else " "

    def _unexpected(self, context: str) -> None:
        raise SyntaxProblem(f"invalid character {_shown(self._inner())} {context}")

    def _value(self) -> "_Step":
        first = self._peek()
        if first in "{[":
            return self._enter(first)
        if first == '"':
            self._string()
        elif first in "-0123456789":
            self._number()
        elif first in "tfn":
            self._word({"t": "true", "f": "false", "n": "null"}[first])
        else:
            self._unexpected("looking for beginning of value")
        return self._after_value

    def _enter(self, bracket: str) -> "_Step":
        if len(self._open) == MAX_DEPTH:
            self._unexpected("exceeded max depth")
        self._open.append(bracket)
        self._at += 1
        if self._peek() == ("}" if bracket == "{" else "]"):
            return self._after_value
        return self._key if bracket == "{" else self._value

    def _key(self) -> "_Step":
        if self._peek() != '"':
            self._unexpected("looking for beginning of object key string")
        self._string()
        if self._peek() != ":":
            self._unexpected("after object key")
        self._at += 1
        return self._value

    def _after_value(self) -> "_Step | None":
        if not self._open:
            self._end()
            return None
        in_object = self._open[-1] == "{"
        following = self._peek()
        if following not in ("}," if in_object else "],"):
            self._unexpected("after object key:value pair" if in_object else "after array element")
        self._at += 1
        if following == ",":
            return self._key if in_object else self._value
        self._open.pop()
        return self._after_value

    def _end(self) -> None:
        if self._body[self._at :].strip(b" \t\r\n"):
            self._peek()
            self._unexpected("after top-level value")

    def _string(self) -> None:
        self._at += 1
        while True:
            found = _PLAIN.match(self._body, self._at)
            assert found is not None
            self._at = found.end()
            following = self._byte()
            if following == '"':
                self._at += 1
                return
            if following != "\\":
                self._unexpected("in string literal")
            self._escape()

    def _escape(self) -> None:
        found = _ESCAPE.match(self._body, self._at)
        if found is not None:
            self._at = found.end()
            return
        self._at += 1
        if self._inner() != "u":
            self._unexpected("in string escape code")
        self._at += 1
        while self._inner().encode("latin-1") in _HEX:
            self._at += 1
        self._unexpected("in \\u hexadecimal character escape")

    def _number(self) -> None:
        found = _NUMBER.match(self._body, self._at)
        if found is None:
            self._at += 1
            self._unexpected("in numeric literal")
            return
        self._at = found.end()
        following = self._body[self._at : self._at + 1]
        if following == b"." and not set(b".eE") & set(found[0]):
            self._at += 1
            self._unexpected("after decimal point in numeric literal")
        if following in (b"e", b"E") and not set(b"eE") & set(found[0]):
            self._at += 1
            if self._inner() in "+-":
                self._at += 1
            self._unexpected("in exponent of numeric literal")

    def _word(self, word: str) -> None:
        for expected in word:
            if self._inner() != expected:
                self._unexpected(f"in literal {word} (expecting '{expected}')")
            self._at += 1


def _shown(character: str) -> str:
    if character == "'":
        return r"'\''"
    if character == '"':
        return "'\"'"
    return f"'{quoted(character)[1:-1]}'"


_ESCAPES = {
    "\a": r"\a",
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
    "\v": r"\v",
    "\\": r"\\",
    '"': r"\"",
}


def quoted(value: str) -> str:
    """A text in quotes, as Go's strconv.Quote writes it."""
    value = fields.cut(value)
    if value.isprintable() and '"' not in value and "\\" not in value:
        return f'"{value}"'
    return f'"{"".join(map(_escaped, value))}"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def encode_base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def decode_base64(value: str) -> bytes:
    """The bytes; line breaks are skipped. `ValueError` with Go's words."""
    written = value.encode()
    bare = written.replace(b"\n", b"").replace(b"\r", b"")
    illegal = _illegal_base64(written)
    if illegal is not None:
        raise ValueError(f"illegal base64 data at input byte {illegal}")
    return base64.b64decode(bare)


_NOT_BASE64 = re.compile(rb"[^A-Za-z0-9+/\r\n]")


def _illegal_base64(written: bytes) -> int | None:
    """Where Go's decoder stops, if it does."""
    found = _NOT_BASE64.search(written)
    end = len(written) if found is None else found.start()
    digits = end - written.count(b"\n", 0, end) - written.count(b"\r", 0, end)
    if found is None:
        return len(written) - digits % 4 if digits % 4 else None
    if found[0] != b"=":
        return end
    return _illegal_padding(written, end, digits % 4)


def _illegal_padding(written: bytes, at: int, position: int) -> int | None:
    """The same from the first `=` on, which has this position within its four digits."""
    if position < 2:
        return at
    if position == 2:
        following = _digit_from(written, at + 1)
        if following is None:
            return len(written)
        if written[following] != ord("="):
            return following - 1
        at = following
    return _digit_from(written, at + 1)


def _digit_from(written: bytes, at: int) -> int | None:
    """The next place that is no line break."""
    while at < len(written) and written[at] in b"\r\n":
        at += 1
    return at if at < len(written) else None
