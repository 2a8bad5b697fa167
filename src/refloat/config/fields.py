# SPDX-License-Identifier: Apache-2.0
"""Reads the fields of a decoded configuration; an error names the path of its field."""

import re
import reprlib
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

from refloat.api import durations, selectors
from refloat.api.selectors import LabelSelector
from refloat.api.validation import meta
from refloat.config.errors import ConfigError

_PERCENT = re.compile("0*(100|[0-9]{1,2})%")

# An error is one line. It shows at most so many characters of a text, and so many entries of a
# list or a mapping.
_shown = reprlib.Repr()
_shown.maxstring = _shown.maxother = 200
_shown.maxlist = _shown.maxdict = 20


def wrong(path: str, value: Any, expected: str) -> ConfigError:
    return ConfigError(f"{path}: {_shown.repr(value)}: expected {expected}")


def mapping(value: Any, path: str, names: Collection[str] = ()) -> dict[str, Any]:
    """A mapping with no other fields than `names`; without `names`, any mapping."""
    if not isinstance(value, dict):
        raise wrong(path, value, "a mapping")
    for name in value:
        if names and name not in names:
            where = name if path == "the document" else f"{path}.{name}"
            raise ConfigError(f"{where}: unknown field; known are: {', '.join(names)}")
    return value


def section(parent: dict[str, Any], name: str, path: str, names: Collection[str]) -> dict[str, Any]:
    """A field that is a mapping; a missing field is an empty mapping."""
    value = parent.get(name)
    return mapping({} if value is None else value, f"{path}.{name}".lstrip("."), names)


def sequence(value: Any, path: str) -> Sequence[Any]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise wrong(path, value, "a list")
    return value


def flag(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise wrong(path, value, "true or false")
    return value


def count(value: Any, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise wrong(path, value, "a whole number, 1 or more")
    return value


def percent(value: Any, path: str) -> int:
    match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise wrong(path, value, "a percentage from '0%' to '100%'")
    return int(match[1])


def duration(value: Any, path: str, *, zero: bool = False) -> timedelta:
    """A length of time, greater than zero unless `zero` will do."""
    period = durations.parse(value) if isinstance(value, str) else None
    if period is None:
        raise wrong(path, value, "a duration such as '90s', '10m' or '1h30m'")
    if period < timedelta() or (not period and not zero):
        raise wrong(path, value, f"a duration {'not below' if zero else 'above'} zero")
    return period


def selector(value: Any, path: str) -> LabelSelector:
    """A LabelSelector; an empty one selects everything."""
    selector_ = mapping(value, path, ("matchLabels", "matchExpressions"))
    labels = selector_.get("matchLabels")
    where = f"{path}.matchLabels"
    _texts(mapping({} if labels is None else labels, where), where)
    for i, each in enumerate(
        sequence(selector_.get("matchExpressions"), f"{path}.matchExpressions")
    ):
        _expression(each, f"{path}.matchExpressions[{i}]")
    for mistake in meta.validate_label_selector(selector_, path):
        raise ConfigError(str(mistake))
    return selectors.from_object(selector_)


def _expression(value: Any, path: str) -> None:
    expression = mapping(value, path, ("key", "operator", "values"))
    for name in ("key", "operator"):
        if not isinstance(expression.get(name), str):
            raise wrong(f"{path}.{name}", expression.get(name), "a text")
    values = sequence(expression.get("values"), f"{path}.values")
    _texts({f"[{i}]": each for i, each in enumerate(values)}, f"{path}.values", dot="")


def _texts(texts: dict[str, Any], path: str, *, dot: str = ".") -> None:
    """An unquoted `true` or `1` is no text in YAML, and would match no label."""
    for name, value in texts.items():
        if not isinstance(name, str):
            raise wrong(path, name, "a text, so in quotes")
        if not isinstance(value, str):
            raise wrong(f"{path}{dot}{name}", value, "a text, so in quotes")
