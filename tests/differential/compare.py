# SPDX-License-Identifier: Apache-2.0
"""Where two answers differ, once what no two servers share is taken out of them."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.differential.answers import ComparedAnswer

_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

# The objects of the generators have times of 2019, which are compared.
_NOW = re.compile(r"20[2-9]\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_GO_TIME = re.compile(r"&?v1\.Time\{[^}]*\}|time\.Date\(20[2-9]\d,[^)]*\)")
_POINTER = re.compile(r"0x[0-9a-f]{6,}")
_GENERATED = re.compile(r"\bmade-[a-z0-9]{5}\b")
_VERSION = re.compile(
    r"((?:ResourceVersion in object meta|in precondition): |ResourceVersion in record \()\d+"
)

# Mistakes that Kubernetes finds in the random order of a Go map.
_UNORDERED = re.compile(
    r"is invalid: \[((?:.*, )?(?:data\[|binaryData\[|(?:\S+\.)?(?:labels|annotations): |"
    r"spec\.schedulingGates\[|status\.allocatedResource).*)\]$",
    re.DOTALL,
)
_AGE = re.compile(r"(\d+[smhdy])+|<invalid>")


class _Absent:
    def __repr__(self) -> str:
        return "(absent)"


ABSENT = _Absent()


@dataclass(frozen=True)
class AnswerDifference:
    """One place, and what each has there."""

    path: str
    left: Any
    right: Any


def is_now(value: Any) -> bool:
    """Is this a time at which something happened in a run?"""
    return isinstance(value, str) and _NOW.fullmatch(value) is not None


def differences(left: ComparedAnswer, right: ComparedAnswer) -> list[AnswerDifference]:
    """All places where two answers differ; for two different codes only code and message."""
    if left.status != right.status:
        code = AnswerDifference("status", left.status, right.status)
        message = AnswerDifference("message", _message(left), _message(right))
        return [code, message]
    warned = (sorted(normal(list(each.warnings))) for each in (left, right))
    pairs: tuple[tuple[str, Any, Any], ...] = (
        ("body", normal(left.body), normal(right.body)),
        ("warnings", next(warned), next(warned)),
        ("retry-after", left.retry_after, right.retry_after),
        ("content-type", left.media, right.media),
    )
    return [each for path, a, b in pairs for each in _compared(path, a, b)]


def _message(answer: ComparedAnswer) -> Any:
    body = normal(answer.body)
    return body.get("message", body) if isinstance(body, dict) else body


def normal(value: Any, key: str = "") -> Any:
    """A value without uids, versions, times and chance."""
    if isinstance(value, dict):
        return {name: normal(item, name) for name, item in value.items()}
    if isinstance(value, list) and key in ("causes", "managedFields"):
        # Causes of a conflict have no order in Kubernetes, and those of a mistake
        # are in the message too; entries of managers have that of their seconds.
        return sorted((normal(item) for item in value), key=_in_order)
    if isinstance(value, list):
        return [normal(item, "cell" if key == "cells" else "") for item in value]
    return _text(value, key) if isinstance(value, str) else value


def _in_order(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _text(value: str, key: str) -> str:
    if value and key in ("resourceVersion", "continue"):
        return key.upper()
    if key == "cell" and _AGE.fullmatch(value):
        return "AGE"
    value = _UID.sub("UID", value)
    value = _GO_TIME.sub("NOW", _NOW.sub("NOW", value))
    value = _VERSION.sub(r"\1VERSION", value)
    value = _POINTER.sub("POINTER", value)
    if key == "message" and (match := _UNORDERED.search(value)):
        value = "[" + ", ".join(sorted(match[1].split(", "))) + "]"
    if key == "message" and "errors:\n" in value:  # of an applied object, in such an order too
        value = "\n".join(sorted(value.splitlines()))
    # Go's JSON errors and ours may break lines alike, with spaces that do not.
    return _GENERATED.sub("made-CHANCE", value).replace("\u00a0", " ")


def _compared(path: str, left: Any, right: Any) -> Iterator[AnswerDifference]:
    # Who owns what is compared as a whole: an entry more moves all others.
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted(left.keys() | right.keys()):
            a, b = left.get(key, ABSENT), right.get(key, ABSENT)
            if key == "managedFields" and a != b:
                yield AnswerDifference(f"{path}.{key}", a, b)
            else:
                yield from _compared(f"{path}.{key}", a, b)
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for place, (a, b) in enumerate(zip(left, right, strict=True)):
            yield from _compared(f"{path}[{place}]", a, b)
    elif left != right or type(left) is not type(right):
        yield AnswerDifference(path, left, right)


# Of two long texts, what stands before and after the place where they part.
_BEFORE, _AFTER = 80, 300


def shown(difference: AnswerDifference, names: tuple[str, str]) -> str:
    """A difference for a person, long texts from shortly before they part."""
    left, right = str(difference.left), str(difference.right)
    pairs = zip(left, right, strict=False)
    parted = next((place for place, (a, b) in enumerate(pairs) if a != b), 0)
    start = max(0, parted - _BEFORE)
    width = max(len(name) for name in names)
    lines = [
        f"    {name:<{width}}: {text[start : parted + _AFTER]}"
        for name, text in zip(names, (left, right), strict=True)
    ]
    return "\n".join([f"  {difference.path}", *lines])
