# SPDX-License-Identifier: Apache-2.0
"""The errors of an object, and the rules that fields of several kinds share.

A check adds to the caller's list, so that a valid object costs no lists. The kind's
module decides which field obeys which rule. Metadata has a module beside this one.
"""

from collections.abc import Container, Iterable, Sequence
from typing import Any

from refloat.api import fields, go_internal_types, index_intervals, names, quantity
from refloat.api.fields import FieldError
from refloat.api.meta import Object

IMMUTABLE = "field is immutable"
NEGATIVE = "must be greater than or equal to 0"
NOT_POSITIVE = "must be greater than zero"

MODE = "must be a number between 0 and 0777 (octal), both inclusive"
MODE_LIMIT = 0o777


class Errors(list[FieldError]):
    """The errors of an object, in the order in which Kubernetes lists them."""

    __slots__ = ()

    def required(self, path: str, detail: str = "") -> None:
        self.append(fields.required(path, detail))

    def invalid(self, path: str, value: Any, detail: str) -> None:
        self.append(fields.invalid(path, value, detail))

    def forbidden(self, path: str, detail: str) -> None:
        self.append(fields.forbidden(path, detail))

    def duplicate(self, path: str, value: Any) -> None:
        self.append(fields.duplicate(path, value))

    def not_supported(self, path: str, value: Any, supported: Iterable[str]) -> None:
        self.append(fields.not_supported(path, value, supported))

    def not_found(self, path: str, value: Any, detail: str = "") -> None:
        self.append(fields.not_found(path, value, detail))

    def too_many(self, path: str, items: Sequence[Any], limit: int) -> None:
        if len(items) > limit:
            self.append(fields.too_many(path, len(items), limit))

    def too_long(self, path: str, text: str, limit: int) -> None:
        if names.longer(text, limit):
            self.append(fields.too_long(path, limit))

    def each(self, path: str, value: Any, complaints: Iterable[str]) -> None:
        """One error for each complaint about a value."""
        for complaint in complaints:
            self.append(fields.invalid(path, value, complaint))

    def named(self, path: str, value: str, check: names.Check) -> None:
        """A text that follows a format."""
        if complaints := check(value):
            self.each(path, value, complaints)

    def required_name(self, path: str, value: str, check: names.Check) -> None:
        """A text that must not be empty and follows a format."""
        if value:
            self.named(path, value, check)
        else:
            self.required(path)

    def required_keys(self, obj: Object, keys: Iterable[str], path: str) -> None:
        """Fields that must not be empty."""
        for key in keys:
            if not obj.get(key):
                self.required(f"{path}.{key}")

    def one_of(self, path: str, value: str | None, supported: Sequence[str]) -> None:
        """A value of an enumeration, or None. Messages show JSON, because Go has a type for it."""
        if value is not None and value not in supported:
            self.not_supported(path, go_internal_types.typed(value), supported)

    def required_one_of(self, path: str, value: str, supported: Sequence[str]) -> None:
        """A value of an enumeration; an empty one has an error of its own."""
        if value:
            self.one_of(path, value, supported)
        else:
            self.required(path)

    def not_negative(self, path: str, value: int | None) -> None:
        if value is not None and value < 0:
            self.invalid(path, value, NEGATIVE)

    def positive(self, path: str, value: int) -> None:
        if value <= 0:
            self.invalid(path, value, NOT_POSITIVE)

    def not_negative_amount(self, path: str, amount: str) -> None:
        if quantity.value(amount) < 0:
            self.invalid(path, amount, NEGATIVE)

    def positive_amount(self, path: str, amount: str) -> None:
        if quantity.value(amount) <= 0:
            self.invalid(path, amount, NOT_POSITIVE)

    def immutable(self, path: str, new: Any, old: Any, kind: str = "") -> None:
        """The same as before; `kind` names the unversioned type of a structure."""
        if not (new == old or (kind and go_internal_types.equal(kind, new, old))):
            self.invalid(path, go_internal_types.shown(kind, new) if kind else new, IMMUTABLE)

    def file_mode(self, obj: Object, key: str, path: str) -> None:
        """The permission bits of a file."""
        mode = obj.get(key)
        if mode is not None and not 0 <= mode <= MODE_LIMIT:
            self.invalid(f"{path}.{key}", mode, MODE)

    def indexes(self, path: str, text: str, completions: int, value: Any = None) -> int:
        """A list of indexes, shown as `value`. Returns how many there are; 0 after an error."""
        try:
            return index_intervals.check(text, completions)
        except index_intervals.BadIndexes as error:
            detail = f"error parsing {path.rpartition('.')[2]}: {error}"
            self.invalid(path, text if value is None else value, detail)
            return 0

    def no_backsteps(self, path: str, value: str) -> None:
        if has_backsteps(value):
            self.invalid(path, value, "must not contain '..'")

    def descending_path(self, path: str, value: str) -> None:
        """A relative path that stays below its start."""
        if value.startswith("/"):
            self.invalid(path, value, "must be a relative path")
        self.no_backsteps(path, value)

    def local_path(self, path: str, value: str) -> None:
        """The path of a file below its volume, without two dots at the start."""
        self.descending_path(path, value)
        if value.startswith("..") and not value.startswith("../"):
            self.invalid(path, value, "must not start with '..'")

    def repeated(self, path: str, value: Any, others: Container[Any]) -> bool:
        """Whether the value is among the others; if so, this is an error."""
        if value in others:
            self.duplicate(path, value)
            return True
        return False

    def unique(self, path: str, value: Any, others: set[Any]) -> None:
        """A value that is not among the others, which it joins."""
        self.repeated(path, value, others)
        others.add(value)


def has_backsteps(path: str) -> bool:
    return ".." in path and ".." in path.split("/")
