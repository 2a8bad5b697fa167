# SPDX-License-Identifier: Apache-2.0
"""Small rules that many fields share: required, one of these, a clean path.

Each takes the list that it adds its mistakes to, so that a valid object costs
no lists. Which field obeys which rule is the caller's to say.
"""

from collections.abc import Container, Iterable, Sequence
from typing import Any, TypeAlias

from refloat.api import fields, internal, names
from refloat.api.fields import FieldError
from refloat.api.meta import Object

Errors: TypeAlias = list[FieldError]

MODE = "must be a number between 0 and 0777 (octal), both inclusive"
MODE_LIMIT = 0o777
NEGATIVE = "must be greater than or equal to 0"
NOT_POSITIVE = "must be greater than zero"


def named(errors: Errors, path: str, value: str, check: names.Check) -> None:
    """A text that follows a format."""
    if complaints := check(value):
        errors += fields.invalid_each(path, value, complaints)


def required_name(errors: Errors, path: str, value: str, check: names.Check) -> None:
    """A text that must be there and follow a format."""
    if not value:
        errors.append(fields.required(path))
    elif complaints := check(value):
        errors += fields.invalid_each(path, value, complaints)


def required_keys(errors: Errors, obj: Object, keys: Iterable[str], path: str) -> None:
    """Fields that must not be empty."""
    for key in keys:
        if not obj.get(key):
            errors.append(fields.required(f"{path}.{key}"))


def one_of(errors: Errors, path: str, value: str, supported: Sequence[str]) -> None:
    """One of an enumeration's values; another one is shown as JSON, for it has a type."""
    if value not in supported:
        errors.append(fields.not_supported(path, internal.typed(value), supported))


def required_one_of(errors: Errors, path: str, value: str, supported: Sequence[str]) -> None:
    """One of an enumeration's values, where none at all is another mistake than a wrong one."""
    if not value:
        errors.append(fields.required(path))
    else:
        one_of(errors, path, value, supported)


def non_negative(errors: Errors, path: str, value: int) -> None:
    if value < 0:
        errors.append(fields.invalid(path, value, NEGATIVE))


def positive(errors: Errors, path: str, value: int) -> None:
    if value <= 0:
        errors.append(fields.invalid(path, value, NOT_POSITIVE))


def file_mode(errors: Errors, obj: Object, key: str, path: str) -> None:
    """The permission bits of a file."""
    mode = obj.get(key)
    if mode is not None and not 0 <= mode <= MODE_LIMIT:
        errors.append(fields.invalid(f"{path}.{key}", mode, MODE))


def no_backsteps(errors: Errors, path: str, value: str) -> None:
    if ".." in value and has_backsteps(value):
        errors.append(fields.invalid(path, value, "must not contain '..'"))


def has_backsteps(value: str) -> bool:
    return ".." in value.split("/")


def descending_path(errors: Errors, path: str, value: str) -> None:
    """A relative path that stays below where it starts."""
    if value.startswith("/"):
        errors.append(fields.invalid(path, value, "must be a relative path"))
    no_backsteps(errors, path, value)


def local_path(errors: Errors, path: str, value: str) -> None:
    """Where a file of a volume is put: below it, and not hidden by two dots."""
    descending_path(errors, path, value)
    if value.startswith("..") and not value.startswith("../"):
        errors.append(fields.invalid(path, value, "must not start with '..'"))


def repeated(errors: Errors, path: str, value: Any, seen: Container[Any]) -> bool:
    """Whether a value was there before; if so, that is a mistake."""
    if value in seen:
        errors.append(fields.duplicate(path, value))
        return True
    return False
