# SPDX-License-Identifier: Apache-2.0
"""Path elements: one step from a value to a part of it.

An element is a text as in fieldsV1: `f:name` is a member, `k:{"name":"a"}` an item of
a list with keys, `v:"a"` an item of a set. Equal steps have equal texts.
"""

import json
from functools import lru_cache
from typing import Any

from refloat.api import integers

# json.dumps with the escapes of Go's encoder.
_ESCAPES = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)

# Elements in the caches: those of a few hundred objects of different kinds.
_REMEMBERED = 4096


def encoded(value: Any) -> str:
    """Compact JSON with sorted keys, as Go writes it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return text.translate(_ESCAPES)


def member(name: str) -> str:
    return f"f:{name}"


def keyed(keys: dict[str, Any]) -> str:
    return f"k:{encoded(keys)}"


def item(value: Any) -> str:
    return f"v:{encoded(value)}"


@lru_cache(_REMEMBERED)
def order(element: str) -> tuple[Any, ...]:
    """The sort key of an element among its siblings: members, keys, values."""
    prefix, _, rest = element.partition(":")
    if prefix == "f":
        return (0, rest)
    if prefix == "k":
        return (1, tuple((name, _rank(value)) for name, value in _decoded(rest).items()))
    if prefix == "v":
        return (2, _rank(_decoded(rest)))
    return (3, int(rest))


def _rank(value: Any) -> tuple[int, Any]:
    """Numbers before text before truth values before the rest."""
    if isinstance(value, bool):
        return (2, value)
    if isinstance(value, int | float):
        return (0, value)
    return (1, value) if isinstance(value, str) else (3, encoded(value))


def _decoded(text: str) -> Any:
    value = json.loads(text)
    return dict(sorted(value.items())) if isinstance(value, dict) else value


def show(element: str) -> str:
    """The element in a path for people: `.name`, `[name="a"]`, `[="a"]`."""
    prefix, _, rest = element.partition(":")
    if prefix == "f":
        return f".{rest}"
    if prefix == "k":
        return f"[{','.join(f'{name}={_shown(each)}' for name, each in _decoded(rest).items())}]"
    return f"[={_shown(_decoded(rest))}]" if prefix == "v" else f"[{rest}]"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "".join(f"{name}={_shown(each)}" for name, each in value.items())
    if isinstance(value, list):
        return f"[{','.join(map(_shown, value))}]"
    return json.dumps(value, ensure_ascii=False)


@lru_cache(_REMEMBERED)
def canonical(element: str) -> str | None:
    """The element in canonical order and spacing; None for a kind of a later version.

    Raises `ValueError` for malformed text.
    """
    kind, colon, rest = element[:1], element[1:2], element[2:]
    if colon != ":":
        raise ValueError(f"{element!r} is no element of a path")
    match kind:
        case "f":
            return element
        case "k":
            return keyed(_keys(rest))
        case "v":
            return item(_decoded(rest))
        case "i":
            return f"i:{integers.signed(rest)}"
        case _:
            return None


def _keys(text: str) -> dict[str, Any]:
    keys = _decoded(text)
    if not isinstance(keys, dict):
        raise ValueError(f"{text!r} has no keys")
    return keys
