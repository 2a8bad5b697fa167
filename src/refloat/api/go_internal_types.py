# SPDX-License-Identifier: Apache-2.0
"""How Kubernetes' API server shows, compares and diffs values of its own types.

A message such as "field is immutable" carries the whole value, and not as the
API serves it: fields have the names of the unversioned Go types, and all of
them are there, set or not. `internal.json` lists those names; `tools/internaltypes`
generates it. Nothing here is needed before something is wrong or has changed.
"""

import difflib
import json
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from refloat.api import fields, quantity

Row: TypeAlias = tuple[str, str, str, bool]  # name shown, source, type, omitted when empty

_ZEROS: dict[str, Any] = {
    "string": "",
    "bool": False,
    "number": 0,
    "time": None,
    "duration": "0s",
    "quantity": "0",
    "intorstring": 0,
    "any": None,
}


@cache
def _types() -> dict[str, list[Row]]:
    text = Path(__file__).with_name("internal.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, list[Row]])


def shown(kind: str, value: Any) -> msgspec.Raw:
    """A value of the API, for a `FieldError`, as its type `kind` is shown."""
    return msgspec.Raw(encode(_Shown().convert(kind, value, {})).encode())


def typed(text: str) -> Any:
    """A text of a type of its own, which messages show as JSON."""
    return text if text.isalnum() else msgspec.Raw(encode(text).encode())


def encode(value: Any, *, indent: int | None = None) -> str:
    """JSON in the form of Go's encoder."""
    separators = (",", ":") if indent is None else (",", ": ")
    text = json.dumps(value, ensure_ascii=False, separators=separators, indent=indent)
    return text.translate(fields.JSON_ESCAPES)


def equal(kind: str, new: Any, old: Any) -> bool:
    """Whether the server takes two values for the same.

    No list is an empty list, `1Gi` is `1024Mi`, and a structure without a
    field is one that has the field's zero.
    """
    if new == old:
        return True
    one, other = (_Compared().convert(kind, each, {}) for each in (new, old))
    return bool(one == other)


def diff(kind: str, old: Any, new: Any) -> str:
    """What changed, line by line, between two values as they are shown."""
    before, after = (_lines(_Shown().convert(kind, each, {})) for each in (old, new))
    # The two lines that would name the files are not there.
    return "".join(list(difflib.unified_diff(before, after))[2:])


def _lines(value: Any) -> list[str]:
    return [f"{line}\n" for line in encode(value, indent=1).split("\n")]


class _Shown:
    """Walks a value of the API along its unversioned type."""

    def convert(self, kind: str, value: Any, parent: dict[str, Any]) -> Any:
        if kind in _ZEROS:
            return self.leaf(kind, value)
        if kind == "*core.PodSecurityContext" and value is None:
            value = {}  # never nil in Kubernetes, because the host flags of the pod are there
        if kind[0] == "*":
            return None if value is None else self.convert(kind[1:], value, parent)
        if kind[0] in "[{":
            return self.held(kind, value, parent)
        return self.struct(kind, value or {}, parent)

    def leaf(self, kind: str, value: Any) -> Any:
        return _ZEROS[kind] if value is None else value

    def held(self, kind: str, value: Any, parent: dict[str, Any]) -> Any:
        if value is None or kind == "[]byte":
            return value
        if kind[0] == "[":
            return [self.convert(kind[2:], each, parent) for each in value]
        return {key: self.convert(kind[2:], value[key], parent) for key in sorted(value)}

    def struct(self, kind: str, value: dict[str, Any], parent: dict[str, Any]) -> dict[str, Any]:
        converted = {}
        for name, source, member, omit in _types()[kind]:
            if source.startswith("../"):
                content = parent.get(source[3:])
            elif source.startswith("metadata."):
                content = value.get("metadata", {}).get(source[len("metadata.") :])
            else:
                content = value.get(source)
            if not (omit and not content):
                converted[name] = self.convert(member, content, value)
        return converted


class _Compared(_Shown):
    """The same, with what is equal made the same."""

    def leaf(self, kind: str, value: Any) -> Any:
        value = super().leaf(kind, value)
        return quantity.value(value) if kind == "quantity" else value

    def held(self, kind: str, value: Any, parent: dict[str, Any]) -> Any:
        return super().held(kind, value, parent) if value else None
