# SPDX-License-Identifier: Apache-2.0
"""JSON and base64 as Go reads them, with Go's words for errors.

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
    """The text of a number."""

    __slots__ = ()


def parse(body: bytes) -> Any:
    """The value, with `Pairs` for objects and `Number` for numbers."""
    try:
        return json.loads(
            body.decode(errors=ONE_FOR_EACH_BYTE),
            object_pairs_hook=_pairs,
            parse_int=Number,
            parse_float=Number,
            parse_constant=int,  # fails for NaN and Infinity, which only Python reads
        )
    except (ValueError, RecursionError):
        raise SyntaxProblem(_Scanner(body).problem()) from None


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


def _number(literal: Number) -> int | float:
    try:
        return int(literal)
    except ValueError:
        return float(literal)


_Step: TypeAlias = Callable[[], "_Step | None"]


class _Scanner:
    """Finds the first wrong byte, with Go's message.

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
        except SyntaxProblem as problem:
            return str(problem)
        # Valid in Go: only the nesting is too deep for Python.
        return "exceeded max depth"

    def _peek(self) -> str:
        """The next byte that is no space."""
        match = _SPACE.match(self._body, self._at)
        assert match is not None
        self._at = match.end()
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
            match = _PLAIN.match(self._body, self._at)
            assert match is not None
            self._at = match.end()
            following = self._byte()
            if following == '"':
                self._at += 1
                return
            if following != "\\":
                self._unexpected("in string literal")
            self._escape()

    def _escape(self) -> None:
        match = _ESCAPE.match(self._body, self._at)
        if match is not None:
            self._at = match.end()
            return
        self._at += 1
        if self._inner() != "u":
            self._unexpected("in string escape code")
        self._at += 1
        while self._inner().encode("latin-1") in _HEX:
            self._at += 1
        self._unexpected("in \\u hexadecimal character escape")

    def _number(self) -> None:
        match = _NUMBER.match(self._body, self._at)
        if match is None:
            self._at += 1
            self._unexpected("in numeric literal")
            return
        self._at = match.end()
        following = self._body[self._at : self._at + 1]
        if following == b"." and not set(b".eE") & set(match[0]):
            self._at += 1
            self._unexpected("after decimal point in numeric literal")
        if following in (b"e", b"E") and not set(b"eE") & set(match[0]):
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
    return f"'{fields.quote(character)[1:-1]}'"


def encode_base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def decode_base64(value: str) -> bytes:
    """The bytes; line breaks are skipped. `ValueError` with Go's words."""
    text = value.encode()
    bare = text.replace(b"\n", b"").replace(b"\r", b"")
    illegal = _illegal_base64(text)
    if illegal is not None:
        raise ValueError(f"illegal base64 data at input byte {illegal}")
    return base64.b64decode(bare)


_NOT_BASE64 = re.compile(rb"[^A-Za-z0-9+/\r\n]")


def _illegal_base64(text: bytes) -> int | None:
    """The position of the first wrong byte, as in Go's decoder."""
    match = _NOT_BASE64.search(text)
    end = len(text) if match is None else match.start()
    digits = end - text.count(b"\n", 0, end) - text.count(b"\r", 0, end)
    if match is None:
        return len(text) - digits % 4 if digits % 4 else None
    if match[0] != b"=":
        return end
    # The same from the first `=` on, which has this position within its four digits.
    at = end
    position = digits % 4
    if position < 2:
        return at
    if position == 2:
        following = _digit_from(text, at + 1)
        if following is None:
            return len(text)
        if text[following] != ord("="):
            return following - 1
        at = following
    return _digit_from(text, at + 1)


def _digit_from(text: bytes, at: int) -> int | None:
    """The next place that is no line break."""
    while at < len(text) and text[at] in b"\r\n":
        at += 1
    return at if at < len(text) else None
