# SPDX-License-Identifier: Apache-2.0
"""The errors of an object's fields, in Kubernetes' words.

Validation collects `FieldError`s in a list and never raises, so that a user gets all
errors at once. `errors.invalid` turns the list into a Status.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

REQUIRED = "FieldValueRequired"
INVALID = "FieldValueInvalid"
NOT_SUPPORTED = "FieldValueNotSupported"
DUPLICATE = "FieldValueDuplicate"
FORBIDDEN = "FieldValueForbidden"
TOO_LONG = "FieldValueTooLong"
TOO_MANY = "FieldValueTooMany"
NOT_FOUND = "FieldValueNotFound"
TYPE_INVALID = "FieldValueTypeInvalid"
INTERNAL = "InternalError"

_TITLES = {
    REQUIRED: "Required value",
    INVALID: "Invalid value",
    NOT_SUPPORTED: "Unsupported value",
    DUPLICATE: "Duplicate value",
    FORBIDDEN: "Forbidden",
    TOO_LONG: "Too long",
    TOO_MANY: "Too many",
    NOT_FOUND: "Not found",
    TYPE_INVALID: "Invalid value",
    INTERNAL: "Internal error",
}

# The characters of a text in a message. Kubernetes shows any length; no name, label or
# command is as long as this.
MAX_SHOWN = 128 * 1024

# As the value of an error: the message shows no value.
OMITTED: Any = object()

# These messages have no value; the others repeat the offending one.
_WITHOUT_VALUE = (REQUIRED, FORBIDDEN, TOO_LONG, INTERNAL)


@dataclass(frozen=True, slots=True)
class FieldError:
    """One error: its type, the field's path, the value, and the reason."""

    type: str
    path: str
    value: Any = None
    detail: str = ""

    @property
    def body(self) -> str:
        """The text without the path, for a cause of a Status."""
        text = _TITLES[self.type]
        if self.type not in _WITHOUT_VALUE and self.value is not OMITTED:
            text += f": {show(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.path}: {self.body}"


def show(value: Any) -> str:
    """A value in Go's form for messages: text in quotes, the rest as JSON."""
    if isinstance(value, str):
        return quote(value)
    if value is None:
        return "null"
    return cut(msgspec.json.encode(value).decode()).translate(JSON_ESCAPES)


def cut(text: str, limit: int = MAX_SHOWN) -> str:
    """The text, or as much of it as a message shows."""
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


# Go's encoder escapes these, so that its JSON can stand in HTML.
JSON_ESCAPES = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)

_QUOTED = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


def quote(text: str) -> str:
    """Text in double quotes, in the form of Go's `%q`."""
    text = cut(text)
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(map(_quoted, text)) + '"'


def _quoted(char: str) -> str:
    if char in _QUOTED:
        return _QUOTED[char]
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def required(path: str, detail: str = "") -> FieldError:
    return FieldError(REQUIRED, path, "", detail)


def invalid(path: str, value: Any, detail: str) -> FieldError:
    return FieldError(INVALID, path, value, detail)


def invalid_each(path: str, value: Any, complaints: Iterable[str]) -> list[FieldError]:
    """One error for each complaint about a value."""
    return [FieldError(INVALID, path, value, complaint) for complaint in complaints]


def duplicate(path: str, value: Any) -> FieldError:
    return FieldError(DUPLICATE, path, value)


def forbidden(path: str, detail: str) -> FieldError:
    return FieldError(FORBIDDEN, path, "", detail)


def not_supported(path: str, value: Any, supported: Iterable[str]) -> FieldError:
    choices = ", ".join(show(each) for each in supported)
    return FieldError(NOT_SUPPORTED, path, value, f"supported values: {choices}" if choices else "")


def too_long(path: str, limit: int) -> FieldError:
    unit = "byte" if limit == 1 else "bytes"
    return FieldError(TOO_LONG, path, "", f"may not be more than {limit} {unit}")


def too_many(path: str, actual: int, limit: int) -> FieldError:
    unit = "item" if limit == 1 else "items"
    return FieldError(TOO_MANY, path, actual, f"must have at most {limit} {unit}")


def not_found(path: str, value: Any, detail: str = "") -> FieldError:
    return FieldError(NOT_FOUND, path, value, detail)


def internal(path: str, detail: str) -> FieldError:
    """The check itself failed."""
    return FieldError(INTERNAL, path, "", detail)
