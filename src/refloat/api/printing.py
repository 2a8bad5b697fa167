# SPDX-License-Identifier: Apache-2.0
"""Times and selectors as Kubernetes shows them to people.

Two or three significant figures and no more: `47s`, `5m12s`, `3h`, `2d4h`.
Nothing here is meant to be parsed again.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

UNKNOWN = "<unknown>"
NONE = "<none>"
UNSET = "<unset>"

_SECOND = (1, "s")
_MINUTE = (60, "m")
_HOUR = (3600, "h")
_DAY = (24 * 3600, "d")
_YEAR = (365 * 24 * 3600, "y")
_NOTHING = (0, "")

# Below so many seconds: the unit to count in, and the one for what is left.
_BANDS = (
    (2 * 60, _SECOND, _NOTHING),
    (10 * 60, _MINUTE, _SECOND),
    (3 * 3600, _MINUTE, _NOTHING),
    (8 * 3600, _HOUR, _MINUTE),
    (2 * 24 * 3600, _HOUR, _NOTHING),
    (8 * 24 * 3600, _DAY, _HOUR),
    (2 * 365 * 24 * 3600, _DAY, _NOTHING),
    (8 * 365 * 24 * 3600, _YEAR, _DAY),
    (float("inf"), _YEAR, _NOTHING),
)

# Clocks of two machines differ a little: what is not older than this is now.
_SKEW_SECONDS = -1

# The longest span that 64 bits of nanoseconds hold, where Kubernetes' own
# arithmetic stops: nothing is ever shown as older than 292 years.
_LONGEST_SECONDS = 2**63 // 10**9


def human_duration(seconds: float) -> str:
    """A span of time in the form of `kubectl`; `<invalid>` for a negative one."""
    whole = min(int(seconds), _LONGEST_SECONDS)
    if whole < 0:
        return "0s" if whole >= _SKEW_SECONDS else "<invalid>"
    for limit, unit, rest in _BANDS:
        if whole < limit:
            return _counted(whole, unit, rest)
    raise AssertionError("the last band is without limit")


def _counted(seconds: int, unit: tuple[int, str], rest: tuple[int, str]) -> str:
    count, remainder = divmod(seconds, unit[0])
    text = f"{count}{unit[1]}"
    if rest[0] and (part := remainder // rest[0]):
        text += f"{part}{rest[1]}"
    return text


def age(timestamp: str | None, now: datetime) -> str:
    """How long ago a timestamp of an object is; `<unknown>` without one."""
    if not timestamp:
        return UNKNOWN
    return human_duration((now - datetime.fromisoformat(timestamp)).total_seconds())


def between(start: str, end: str) -> str:
    """How long after the timestamp `start` the timestamp `end` is."""
    span = datetime.fromisoformat(end) - datetime.fromisoformat(start)
    return human_duration(span.total_seconds())


def label_map(labels: Mapping[str, str] | None) -> str:
    """`a=1,b=2`, ordered by the whole text of each pair."""
    if not labels:
        return NONE
    return ",".join(sorted(f"{key}={value}" for key, value in labels.items()))


def label_selector(selector: Mapping[str, Any] | None) -> str:
    """A label selector in the notation of `kubectl get -l`, ordered by key."""
    if not selector:
        return NONE
    labels = (selector.get("matchLabels") or {}).items()
    expressions = selector.get("matchExpressions") or ()
    requirements = [(key, f"{key}={value}") for key, value in labels]
    requirements += [(each["key"], _expression(each)) for each in expressions]
    requirements.sort(key=lambda pair: pair[0])
    return ",".join(text for _, text in requirements) or NONE


def _expression(expression: Mapping[str, Any]) -> str:
    key, operator = expression["key"], expression["operator"]
    if operator == "Exists":
        return f"{key}"
    if operator == "DoesNotExist":
        return f"!{key}"
    return f"{key} {operator.lower()} ({','.join(sorted(expression.get('values') or ()))})"
