# SPDX-License-Identifier: Apache-2.0
"""Random JSON patches, and what strategic merge patches can say beyond plain merging."""

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
        pairs = [(key.replace("~", "~0").replace("/", "~1"), held) for key, held in obj.items()]
    elif isinstance(obj, list):
        pairs = [(str(place), held) for place, held in enumerate(obj)]
    for key, held in pairs:
        yield f"{below}/{key}", held
        yield from pointers(held, f"{below}/{key}")


def json_patch(random: Random, obj: dict[str, Any]) -> list[dict[str, Any]]:
    """Some operations, mostly on what the object has."""
    places = list(pointers(obj)) or [("/x", "v")]
    return [_operation(random, places) for _ in range(random.choice((1, 1, 2, 3)))]


def _operation(random: Random, places: list[tuple[str, Any]]) -> dict[str, Any]:
    name = random.choice(_OPERATIONS)
    path, held = random.choice(places)
    if random.random() < 0.15:
        path, held = random.choice(_ELSEWHERE), "v"  # type: ignore[assignment]
    made: dict[str, Any] = {"op": name, "path": path}
    if name in ("copy", "move"):
        made["from"] = random.choice(places)[0]
    elif name == "test":
        made["value"] = copy.deepcopy(held) if random.random() < 0.8 else "nope"
    elif name != "remove":
        made["value"] = _value(random, held)
    if random.random() < 0.03:
        made.pop(random.choice(list(made)))
    return made


def _value(random: Random, held: Any) -> Any:
    chance = random.random()
    if chance < 0.2:
        return copy.deepcopy(held)
    if chance < 0.6:
        return values.anything(random)
    return next(iter(values.metadata(random).values()))
