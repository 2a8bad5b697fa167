# SPDX-License-Identifier: Apache-2.0
"""Random JSON patches, and the directives of strategic merge patches."""

import copy
from collections.abc import Iterator
from random import Random
from typing import Any

from tests.differential import values

_OPERATIONS = (*("add", "replace", "remove") * 2, "test", "copy", "move", "nope", "", None)

_ELSEWHERE = (
    *("/spec/x", "/metadata/labels/n", "/metadata/labels", "/status", "/spec", "", "/x", "foo"),
    *("/metadata/annotations/a~1b", "/metadata/finalizers/-", "/metadata/finalizers/0"),
    *("/spec/containers/-", "/spec/containers/5", "/spec/template/metadata/labels/z", 1),
)

DIRECTIVES: tuple[dict[str, Any], ...] = (
    {"metadata": {"$patch": "replace", "labels": {"z": "z"}}},
    {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.b/c"]}},
    {"metadata": {"labels": {"$patch": "replace", "q": "r"}}},
    {"spec": {"$patch": "delete"}},
    {
        "metadata": {
            "$setElementOrder/finalizers": ["d.e/f", "a.b/c"],
            "finalizers": ["d.e/f"],
        }
    },
    {"metadata": {"finalizers": ["g.h/i"]}},
    {"metadata": {"ownerReferences": [{"$patch": "delete", "uid": "u"}]}},
    {"spec": {"$retainKeys": ["containers"]}},
)


def pointers(obj: Any, below: str = "") -> Iterator[tuple[str, Any]]:
    """All JSON pointers into an object, with what they lead to."""
    pairs: list[tuple[str, Any]] = []
    if isinstance(obj, dict):
        pairs = [(key.replace("~", "~0").replace("/", "~1"), value) for key, value in obj.items()]
    elif isinstance(obj, list):
        pairs = [(str(place), value) for place, value in enumerate(obj)]
    for key, value in pairs:
        yield f"{below}/{key}", value
        yield from pointers(value, f"{below}/{key}")


def json_patch(random: Random, obj: dict[str, Any]) -> list[dict[str, Any]]:
    """Some operations, mostly on what the object has."""
    places = list(pointers(obj)) or [("/x", "v")]
    return [_operation(random, places) for _ in range(random.choice((1, 1, 2, 3)))]


def _operation(random: Random, places: list[tuple[str, Any]]) -> dict[str, Any]:
    name = random.choice(_OPERATIONS)
    path, value = random.choice(places)
    if random.random() < 0.15:
        path, value = random.choice(_ELSEWHERE), "v"  # type: ignore[assignment]
    operation: dict[str, Any] = {"op": name, "path": path}
    if name in ("copy", "move"):
        operation["from"] = random.choice(places)[0]
    elif name == "test":
        operation["value"] = copy.deepcopy(value) if random.random() < 0.8 else "nope"
    elif name != "remove":
        operation["value"] = _value(random, value)
    if random.random() < 0.03:
        operation.pop(random.choice(list(operation)))
    return operation


def _value(random: Random, value: Any) -> Any:
    chance = random.random()
    if chance < 0.2:
        return copy.deepcopy(value)
    if chance < 0.6:
        return values.anything(random)
    return next(iter(values.metadata(random).values()))
