# SPDX-License-Identifier: Apache-2.0
"""YAML as Kubernetes reads it: version 1.1, the first document, made into JSON.

Built from the parser's events, since which plain words are truth values,
numbers or texts differs from PyYAML's rules, and since neither deep nesting
nor aliases of aliases may cost more than they are worth.
"""

import math
import re
from decimal import Decimal
from typing import Any

import yaml

from refloat.api import fields, gojson

# As deep as Go's parser goes.
MAX_DEPTH = 10_000

# Aliases may make a document larger than the text, up to this.
MAX_NODES = 50_000

# The digits of 2**64. A number with more is no integer to Go, and Python reads
# some thousands of digits only with an error.
MAX_DIGITS = 20

_WORDS: dict[str, Any] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "on", "On", "ON"), True),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "off", "Off", "OFF"), False),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}

_INTEGER = re.compile(r"([-+]?)(0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")

_STANDARD = "tag:yaml.org,2002:"
_MERGE = object()


class YamlProblem(ValueError):
    """The body is not YAML, or cannot be JSON; the text is Go's."""


def parse(body: bytes) -> tuple[Any, list[str]]:
    """The value with sorted members, and a sentence for each key that repeats."""
    builder = _built(body)
    return builder.result, builder.repeated


def parse_sure(body: bytes) -> tuple[Any, list[str]]:
    """The value, and a sentence for each key that may not mean what it seems to.

    Such are one that is written twice, and one that is no text, as `on` is true.
    To set anew what was merged in before is what merging is for.
    """
    builder = _built(body)
    return builder.result, builder.doubts


def _built(body: bytes) -> "_Builder":
    builder = _Builder()
    try:
        for event in yaml.parse(body, yaml.CSafeLoader):
            builder.take(event)
            if isinstance(event, yaml.DocumentEndEvent):
                break  # the other documents do not count
    except yaml.MarkedYAMLError as error:
        # Go counts the lines from zero in the parser, from one in the scanner.
        line = error.problem_mark.line if error.problem_mark else 0
        if line and isinstance(error, yaml.scanner.ScannerError):
            line += 1
        if not line and error.context_mark:
            line = error.context_mark.line
        where = f"line {line}: " if line else ""
        raise YamlProblem(f"yaml: {where}{error.problem}") from None
    except yaml.reader.ReaderError as error:
        raise YamlProblem(f"yaml: {error.reason}") from None
    except UnicodeDecodeError:
        raise YamlProblem("yaml: invalid leading UTF-8 octet") from None
    return builder


def is_text(word: str) -> bool:
    """Whether a text that is written without quotes is read as that text."""
    return isinstance(_resolved(word), str)


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 0


class _Open:
    """A list or map whose end has not come yet."""

    def __init__(self, event: yaml.Event) -> None:
        self.anchor = getattr(event, "anchor", None)
        self.line = _line(event)
        self.value: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
        self.weight = 1
        self.lines: dict[str, int] = {}  # of the values of a map, in their order
        self.merged: set[str] = set()  # the names that other maps gave
        self.key: Any = None
        self.has_key = False


class _Builder:
    def __init__(self) -> None:
        self.result: Any = None
        self.repeated: list[str] = []
        self.doubts: list[str] = []
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._unfinished: set[str] = set()
        # The maps that are ended, by identity, with the lines of their values:
        # where one is merged into another, messages name the former's lines.
        self._ended: dict[int, tuple[Any, dict[str, int]]] = {}

    def take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor in self._unfinished:
                raise YamlProblem(f"yaml: anchor '{event.anchor}' value contains itself")
            if event.anchor not in self._anchors:
                raise YamlProblem(f"yaml: unknown anchor '{event.anchor}' referenced")
            value, weight = self._anchors[event.anchor]
            self._put(value, _line(event), weight)
        elif isinstance(event, yaml.SequenceStartEvent | yaml.MappingStartEvent):
            self._start(event)
        elif isinstance(event, yaml.SequenceEndEvent | yaml.MappingEndEvent):
            self._end()

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        value = _scalar(
            event,
            is_key=(
                bool(self._open)
                and isinstance(self._open[-1].value, dict)
                and (not self._open[-1].has_key)
            ),
        )
        if event.anchor:
            self._anchors[event.anchor] = (value, 1)
        self._put(value, _line(event), 1)

    def _start(self, event: yaml.Event) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise YamlProblem(f"yaml: exceeded max depth of {MAX_DEPTH}")
        opened = _Open(event)
        if opened.anchor:
            self._unfinished.add(opened.anchor)
        self._open.append(opened)

    def _end(self) -> None:
        collection = self._open.pop()
        value = collection.value
        if isinstance(value, dict):
            value = dict(sorted(value.items()))
            self._ended[id(value)] = (value, collection.lines)
        if collection.anchor:
            self._unfinished.discard(collection.anchor)
            self._anchors[collection.anchor] = (value, collection.weight)
        self._put(value, collection.line, collection.weight)

    def _put(self, value: Any, line: int, weight: int) -> None:
        if not self._open:
            self.result = value
            return
        parent = self._open[-1]
        parent.weight += weight
        if parent.weight > MAX_NODES:
            raise YamlProblem("yaml: document contains excessive aliasing")
        if isinstance(parent.value, list):
            parent.value.append(value)
        elif not parent.has_key:
            parent.key, parent.has_key = value, True
        else:
            parent.has_key = False
            self._member(parent, value, line)

    def _member(self, parent: _Open, value: Any, line: int) -> None:
        if parent.key is _MERGE:
            self._merge(parent, value)
            return
        name = _name(parent.key, value)
        label = fields.quote(name) if isinstance(parent.key, str) else name
        if not isinstance(parent.key, str):
            self.doubts.append(f"line {line}: key {name} is no text unless it is in quotes")
        self._set(parent, name, value, line=line, label=label)
        parent.merged.discard(name)

    def _merge(self, parent: _Open, value: Any) -> None:
        """Set all members of other maps; of a list's maps the first ones win."""
        for each in reversed(value) if isinstance(value, list) else (value,):
            if not isinstance(each, dict):
                raise YamlProblem("yaml: map merge requires map or sequence of maps as the value")
            for name, line in self._ended[id(each)][1].items():
                self._set(parent, name, each[name], line=line, label=fields.quote(name))
                parent.merged.add(name)

    def _set(self, parent: _Open, name: str, value: Any, *, line: int, label: str) -> None:
        if name in parent.value:
            message = f"line {line}: key {label} already set in map"
            self.repeated.append(message)
            if name not in parent.merged:
                self.doubts.append(message)
        parent.value[name] = value
        parent.lines[name] = line


def _name(key: Any, value: Any) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int | float):
        return str(key)
    if key is None:
        text = fields.quote(value) if isinstance(value, str) else value
        raise YamlProblem(f"unsupported map key of type: %!s(<nil>), key: <nil>, value: {text}")
    raise YamlProblem(f"yaml: invalid map key: {_go_value(key)}")


def _go_value(value: Any) -> str:
    """The value in the form of Go's %#v."""
    if isinstance(value, dict):
        members = (f"{_go_value(key)}:{_go_value(item)}" for key, item in value.items())
        return f"map[interface {{}}]interface {{}}{{{', '.join(members)}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(_go_value, value))}}}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "interface {}(nil)"
    return fields.quote(value) if isinstance(value, str) else str(value)


def _scalar(event: yaml.ScalarEvent, *, is_key: bool) -> Any:
    text = event.value
    if event.tag is None or event.tag == "!":
        if not event.implicit[0]:
            return text
        return _MERGE if text == "<<" and is_key else _as_json(_resolved(text))
    if event.tag == f"{_STANDARD}binary":
        try:
            return gojson.decode_base64(text).decode(errors="replace")
        except ValueError:
            raise YamlProblem("yaml: !!binary value contains invalid base64 data") from None
    if event.tag in (f"{_STANDARD}{name}" for name in ("int", "float", "bool", "null")):
        name, value = event.tag.removeprefix(_STANDARD), _resolved(text)
        actual = "null" if value is None else type(value).__name__
        if name not in (actual, "float" if actual == "int" else ""):
            raise YamlProblem(f"yaml: cannot decode !!{actual} `{text}` as a !!{name}")
        return _as_json(value)
    return text


def _resolved(text: str) -> Any:
    """The value of a plain word."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    digits = text.replace("_", "")
    number = _integer(digits)
    if number is not None:
        return number
    if _FLOAT.fullmatch(digits) and math.isfinite(float(digits)):
        return float(digits)
    return text


def _as_json(value: Any) -> Any:
    """JSON knows no infinity; a number that has no fraction is written without one."""
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        literal = "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
        raise YamlProblem(f"json: unsupported value: {literal}")
    if value.is_integer() and abs(value) < 1e21:
        # The shortest digits of the number, then zeros.
        return int(Decimal(repr(value)))
    return value


def _integer(digits: str) -> int | None:
    match = _INTEGER.fullmatch(digits)
    if match is None:
        return None
    sign, body = match.groups()
    if body[0] != "0" and len(body) > MAX_DIGITS:
        return None
    octal = len(body) > 1 and body[0] == "0" and body[1].isdigit()
    number = int(body, 8) if octal else int(body, 0)
    number = -number if sign == "-" else number
    return number if -(1 << 63) <= number < 1 << 64 else None
