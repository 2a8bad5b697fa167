# SPDX-License-Identifier: Apache-2.0
"""Cases for defaults and validation, with the answers of a real API server.

A file `data/<kind>.json` has a valid `base` object and lists of cases, each
of which changes a few fields. `want` is what Kubernetes answered: the
causes of the Status, each as [reason, field, message]. `tools/corpus.py` asks
a server again; the tests never do.
"""

import copy
import json
from pathlib import Path
from typing import Any

from refloat.api.fields import FieldError

DATA = Path(__file__).with_name("data")

# In the answers and in the tests every object has this uid.
UID = "11111111-2222-3333-4444-555555555555"


def load(kind: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((DATA / f"{kind}.json").read_text())
    return loaded


def changed(obj: dict[str, Any], changes: dict[str, Any] | None) -> dict[str, Any]:
    """A copy with the fields at these JSON pointers set, or removed by a null."""
    result = copy.deepcopy(obj)
    for pointer, value in (changes or {}).items():
        steps = [each.replace("~1", "/").replace("~0", "~") for each in pointer.split("/")[1:]]
        _put(result, steps, _expanded(value))
    return result


def _put(node: Any, steps: list[str], value: Any) -> None:
    for step in steps[:-1]:
        node = node[int(step)] if isinstance(node, list) else node.setdefault(step, {})
    last = steps[-1]
    if isinstance(node, list):
        node[int(last) :] = [value, *node[int(last) + 1 :]]
    elif value is None:
        node.pop(last, None)
    else:
        node[last] = copy.deepcopy(value)


def _expanded(value: Any) -> Any:
    """`{"$repeat": [x, n]}` stands for a text or a list of n pieces x."""
    if isinstance(value, dict) and "$repeat" in value:
        piece, times = value["$repeat"]
        return piece * times if isinstance(piece, str) else [piece] * times
    if isinstance(value, dict):
        return {key: _expanded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_expanded(each) for each in value]
    return value


def causes(mistakes: list[FieldError]) -> list[list[str]]:
    return [[each.type, each.path, each.body] for each in mistakes]


def ids(cases: list[dict[str, Any]]) -> list[str]:
    return [case["id"] for case in cases]
