# SPDX-License-Identifier: Apache-2.0
"""Label selectors and field selectors: read, match, print.

Three forms come here: the text of a `labelSelector` query, the text of a
`fieldSelector` query, and the LabelSelector objects inside of specs. Each is
compiled once, and matching then only looks up and compares. Which fields a
kind can be selected on is not known here, and neither is any list of objects.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from refloat.api import errors, fields, integers, names

_Test = Callable[[Mapping[str, str]], bool]

# Of a selector in a query. People and programs write about ten terms; a watch
# tries each term on each change, and there may be thousands of watches.
MAX_TERMS = 200
MAX_VALUES = 5_000  # of all sets together, which are looked up and not tried one by one
MAX_CHARACTERS = 128 * 1024  # a name of 25 characters for each value


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label."""

    key: str
    operator: str  # as written: in notin = == != exists ! > <
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.operator == "exists":
            return self.key
        if self.operator == "!":
            return f"!{self.key}"
        if self.operator in ("in", "notin"):
            return f"{self.key} {self.operator} ({','.join(sorted(self.values))})"
        return f"{self.key}{self.operator}{self.values[0]}"

    def compile(self) -> _Test:
        key, operator = self.key, self.operator
        if operator == "exists":
            return lambda labels: key in labels
        if operator == "!":
            return lambda labels: key not in labels
        if operator in ("in", "notin"):
            members = frozenset(self.values)
            if operator == "in":
                return lambda labels: labels.get(key) in members
            return lambda labels: labels.get(key) not in members
        value = self.values[0]
        if operator == "!=":
            return lambda labels: labels.get(key) != value
        if operator in ("=", "=="):
            return lambda labels: labels.get(key) == value
        bound, sign = integers.signed(value), 1 if operator == ">" else -1
        return lambda labels: (
            (number := _integer(labels.get(key, ""))) is not None and sign * (number - bound) > 0
        )


def _integer(text: str) -> int | None:
    try:
        return integers.signed(text)
    except integers.NotInteger:
        return None


class LabelSelector:
    """Requirements that must all hold; without any, everything matches."""

    __slots__ = ("_tests", "requirements")

    def __init__(self, requirements: Iterable[Requirement]) -> None:
        self.requirements = tuple(sorted(requirements, key=lambda each: each.key))
        self._tests = tuple(each.compile() for each in self.requirements)

    @property
    def empty(self) -> bool:
        return not self._tests

    def matches(self, labels: Mapping[str, str]) -> bool:
        for test in self._tests:  # noqa: SIM110 - all() costs twice as much here
            if not test(labels):
                return False
        return True

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.requirements == self.requirements

    def __hash__(self) -> int:
        return hash((type(self), self.requirements))


EVERYTHING = LabelSelector(())


class _Nothing(LabelSelector):
    __slots__ = ()

    @property
    def empty(self) -> bool:
        return False

    def matches(self, labels: Mapping[str, str]) -> bool:
        return False


NOTHING: LabelSelector = _Nothing(())

_OBJECT_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


def from_object(selector: Mapping[str, Any] | None) -> LabelSelector:
    """A LabelSelector of a spec, after validation.

    No selector matches nothing, and one without requirements everything.
    """
    if selector is None:
        return NOTHING
    requirements = [
        Requirement(key, "=", (value,))
        for key, value in (selector.get("matchLabels") or {}).items()
    ]
    for each in selector.get("matchExpressions") or ():
        operator = _OBJECT_OPERATORS.get(each.get("operator", ""))
        if operator is None:
            text = fields.show(each.get("operator", ""))
            raise errors.bad_request(f"{text} is not a valid label selector operator")
        requirements.append(Requirement(each["key"], operator, tuple(each.get("values") or ())))
    return LabelSelector(requirements) if requirements else EVERYTHING


def parse_labels(text: str) -> LabelSelector:
    """Read `a=b,c!=d,e in (x,y),f notin (z),g,!h,i>1`; raises 400."""
    if not text:
        return EVERYTHING
    _check_length(text, "label")
    return LabelSelector(_bounded(_Parser(text).requirements()))


def _check_length(text: str, kind: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise errors.bad_request(
            f"the {kind} selector is too long: at most {MAX_CHARACTERS} characters are read"
        )


def _bounded(requirements: Iterable[Requirement]) -> Iterator[Requirement]:
    values = 0
    for terms, each in enumerate(requirements, 1):
        values += len(each.values)
        if terms > MAX_TERMS or values > MAX_VALUES:
            raise errors.bad_request(
                f"the label selector is too long: at most {MAX_TERMS} requirements with "
                f"{MAX_VALUES} values are read"
            )
        yield each


# The lexer: words, the longest special symbols, and blanks between them.
_TOKEN = re.compile(r"[ \t\r\n]*(?:([^ \t\r\n=!(),<>]+)|(==|!=|[=!(),<>]))?")
_END = ""
_BINARY = ("in", "notin", "=", "==", "!=", ">", "<")
_SYMBOLS = frozenset((*_BINARY[2:], "!", "(", ")", ",", _END))


class _Bad(Exception):
    """An invalid requirement; the text has the reason."""


class _Parser:
    """Reads requirements from left to right and stops at the first mistake."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._next = next(self._tokens)

    def requirements(self) -> Iterator[Requirement]:
        if self._next == _END:
            return
        if self._next in _SYMBOLS and self._next != "!":
            raise _unexpected(self._next, "!, identifier, or 'end of string'")
        while True:
            yield self._requirement()
            lexeme = self._take()
            if lexeme == _END:
                return
            if lexeme != ",":
                raise _unexpected(lexeme, "',' or 'end of string'")
            if self._next in _SYMBOLS and self._next != "!":
                raise _unexpected(self._next, "identifier after ','")

    def _take(self) -> str:
        lexeme = self._next
        self._next = next(self._tokens, _END)
        return lexeme

    def _requirement(self) -> Requirement:
        try:
            return self._checked()
        except _Bad as error:
            raise errors.bad_request(f"unable to parse requirement: {error}") from None

    def _checked(self) -> Requirement:
        negated = self._next == "!" and bool(self._take())
        key = self._word()
        if complaints := names.qualified_name(key):
            raise _Bad(f"<nil>: Invalid value: {fields.show(key)}: {'; '.join(complaints)}")
        if negated:
            return Requirement(key, "!")
        if self._next in (_END, ","):
            return Requirement(key, "exists")
        operator = self._take()
        if operator not in _BINARY:
            raise _Bad(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")
        values = self._values() if operator in ("in", "notin") else (self._value(),)
        mistakes = []
        if operator in ("<", ">") and _integer(values[0]) is None:
            detail = "for 'Gt', 'Lt' operators, the value must be an integer"
            mistakes.append(str(fields.invalid("values[0]", values[0], detail)))
        for index, value in enumerate(values):
            if complaints := names.label_value(value):
                mistake = fields.invalid(f"values[{index}][{key}]", value, "; ".join(complaints))
                mistakes.append(str(mistake))
        if mistakes:
            raise _Bad(mistakes[0] if len(mistakes) == 1 else f"[{', '.join(mistakes)}]")
        return Requirement(key, operator, values)

    def _word(self) -> str:
        lexeme = self._take()
        if lexeme in _SYMBOLS:
            raise _Bad(f"found '{lexeme}', expected: identifier")
        return lexeme

    def _value(self) -> str:
        return "" if self._next in (_END, ",") else self._word()

    def _values(self) -> tuple[str, ...]:
        if (lexeme := self._take()) != "(":
            raise _Bad(f"found '{lexeme}' expected: '('")
        if self._next in _SYMBOLS and self._next not in (",", ")"):
            raise _Bad(f"found '{self._next}', expected: ',', ')' or identifier")
        values: set[str] = set()
        while len(values) <= MAX_VALUES and (self._next != ")" or not values):
            if self._next == ")":
                values.add("")
                continue
            lexeme = self._take()
            if lexeme == ",":
                # A comma at either end, or two in a row, stand beside an empty value.
                if not values or self._next in (")", ","):
                    values.add("")
                continue
            if lexeme in _SYMBOLS:
                raise _Bad(f"found '{lexeme}', expected: ',', or identifier")
            values.add(lexeme)
            if self._next not in (",", ")"):
                raise _Bad(f"found '{self._next}', expected: ',' or ')'")
        if len(values) > MAX_VALUES:
            raise _Bad(f"a set has at most {MAX_VALUES} values")
        self._take()
        return tuple(sorted(values))


def _tokens(text: str) -> Iterator[str]:
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        assert match is not None
        place = match.end()
        if lexeme := match[1] or match[2]:
            yield lexeme
    yield _END


def _unexpected(lexeme: str, expected: str) -> errors.StatusError:
    return errors.bad_request(f"found '{lexeme}', expected: {expected}")


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One condition on one field."""

    label: str
    value: str
    negated: bool = False

    def __str__(self) -> str:
        value = self.value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
        return f"{self.label}{'!=' if self.negated else '='}{value}"


class FieldSelector:
    """Terms that must all hold; without any, everything matches."""

    __slots__ = ("terms",)

    def __init__(self, terms: Iterable[FieldTerm]) -> None:
        self.terms = tuple(terms)

    @property
    def empty(self) -> bool:
        return not self.terms

    @property
    def labels(self) -> tuple[str, ...]:
        """The fields asked about, in the order that Kubernetes checks them in."""
        return tuple(term.label for term in self.terms)

    def matches(self, object_fields: Mapping[str, str]) -> bool:
        """Whether an object's fields match; a missing field counts as empty."""
        for term in self.terms:
            if (object_fields.get(term.label, "") == term.value) is term.negated:
                return False
        return True

    def pinned(self, label: str) -> str:
        """The value that a field must have, or nothing when many would do."""
        for term in self.terms:
            if term.label == label and not term.negated:
                return term.value
        return ""

    def renamed(self, labels: Mapping[str, str]) -> "FieldSelector":
        """The same selector on fields under other names."""
        return FieldSelector(
            FieldTerm(labels.get(term.label, term.label), term.value, term.negated)
            for term in self.terms
        )

    def __str__(self) -> str:
        return ",".join(map(str, self.terms))


ANY_FIELDS = FieldSelector(())

_TERM = re.compile(r"(?s)(.*?)(!=|==|=)(.*)")
_SPLIT = re.compile(r"(?s)((?:\\.|[^\\,])*\\?)(?:,|$)")
_ESCAPE = re.compile(r"(?s)\\(.?)|([,=])")


def parse_fields(text: str) -> FieldSelector:
    """Read `a=b,c!=d`, where a backslash escapes `,`, `=` and itself; raises 400."""
    if not text:
        return ANY_FIELDS
    _check_length(text, "field")
    terms = []
    parts = list(islice(filter(None, _split(text)), MAX_TERMS + 1))
    if len(parts) > MAX_TERMS:
        message = f"the field selector is too long: at most {MAX_TERMS} terms are read"
        raise errors.bad_request(message)
    for part in sorted(parts):
        match = _TERM.fullmatch(part)
        if match is None:
            raise errors.bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        term = FieldTerm(match[1], _ESCAPE.sub(_unescaped, match[3]), match[2] == "!=")
        if term.label or term.value:
            terms.append(term)
    return FieldSelector(terms)


def _split(text: str) -> Iterator[str]:
    place = 0
    while place <= len(text):
        match = _SPLIT.match(text, place)
        assert match is not None
        yield match[1]
        place = match.end() + (match.end() == len(text))


def _unescaped(match: re.Match[str]) -> str:
    if match[2]:
        code = ord(match[2])
        raise errors.bad_request(f"invalid field selector: unescaped character in value: {code}")
    if match[1] not in ("\\", ",", "="):
        raise errors.bad_request(f"invalid field selector: invalid escape sequence: {match[0]}")
    return match[1]
