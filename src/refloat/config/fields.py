# SPDX-License-Identifier: Apache-2.0
"""Reading the fields of a decoded configuration, each with its path for the case of a mistake."""

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

# A mistake is told in one line: of a value this much is shown, of text in
# characters, of lists and mappings in entries, and of what is within in levels.
_shown = reprlib.Repr()
_shown.maxstring = _shown.maxother = 200
_shown.maxlist = _shown.maxdict = 20


def wrong(path: str, value: Any, expected: str) -> ConfigError:
    return ConfigError(f"{path}: {_shown.repr(value)}: expected {expected}")


def mapping(value: Any, path: str, known: Collection[str] = ()) -> dict[str, Any]:
    """A mapping with none but these fields, or with any if none are named."""
    if not isinstance(value, dict):
        raise wrong(path, value, "a mapping")
    for name in value:
        if known and name not in known:
            where = name if path == "the document" else f"{path}.{name}"
            raise ConfigError(f"{where}: unknown field; known are: {', '.join(known)}")
    return value


def section(parent: dict[str, Any], name: str, path: str, known: Collection[str]) -> dict[str, Any]:
    """A field that is a mapping, and empty if it is not there."""
    value = parent.get(name)
    return mapping({} if value is None else value, f"{path}.{name}".lstrip("."), known)


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
    found = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise wrong(path, value, "a percentage from '0%' to '100%'")
    return int(found[1])


def duration(value: Any, path: str, *, zero: bool = False) -> timedelta:
    """A length of time, greater than zero unless `zero` will do."""
    found = durations.parse(value) if isinstance(value, str) else None
    if found is None:
        raise wrong(path, value, "a duration such as '90s', '10m' or '1h30m'")
    if found < timedelta() or (not found and not zero):
        raise wrong(path, value, f"a duration {'not below' if zero else 'above'} zero")
    return found


def selector(value: Any, path: str) -> LabelSelector:
    """A LabelSelector; an empty one selects everything."""
    found = mapping(value, path, ("matchLabels", "matchExpressions"))
    _texts(mapping(_given(found, "matchLabels", {}), f"{path}.matchLabels"), f"{path}.matchLabels")
    for i, each in enumerate(sequence(found.get("matchExpressions"), f"{path}.matchExpressions")):
        _expression(each, f"{path}.matchExpressions[{i}]")
    for mistake in meta.validate_label_selector(found, path):
        raise ConfigError(str(mistake))
    return selectors.from_object(found)


def _given(found: dict[str, Any], name: str, default: Any) -> Any:
    return default if found.get(name) is None else found[name]


def _expression(value: Any, path: str) -> None:
    found = mapping(value, path, ("key", "operator", "values"))
    for name in ("key", "operator"):
        if not isinstance(found.get(name), str):
            raise wrong(f"{path}.{name}", found.get(name), "a text")
    values = sequence(found.get("values"), f"{path}.values")
    _texts({f"[{i}]": each for i, each in enumerate(values)}, f"{path}.values", dot="")


def _texts(found: dict[str, Any], path: str, *, dot: str = ".") -> None:
    """YAML reads an unquoted `true` or `1` as something else, and then nothing would match."""
    for name, value in found.items():
        if not isinstance(name, str):
            raise wrong(path, name, "a text, so in quotes")
        if not isinstance(value, str):
            raise wrong(f"{path}{dot}{name}", value, "a text, so in quotes")
