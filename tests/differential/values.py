# SPDX-License-Identifier: Apache-2.0
"""Random values for the fields of the schema: mostly of the right type, often wrong.

The texts are words that some field of some kind has a meaning for, so that a
random choice hits valid enumerations, quantities and names now and then.
"""

import copy
from collections.abc import Mapping
from random import Random
from typing import Any

from refloat.api import schema

TEXTS = (
    *("", "x", "a-b", "a/b", "a.b/c", "UPPER", "-bad", "1", "a b", "é", "a" * 64),
    *("50%", "101%", "1Gi", "500m", "0-1", "1,3", "10.0.0.1", "10.0.0.0/24", "c", "n1", "http"),
    *("True", "False", "Unknown", "2019-01-01T00:00:00Z", "kubernetes.io/x"),
    *("Running", "Failed", "Succeeded", "Pending", "Bound", "Ready", "Complete", "Suspended"),
    *("DisruptionTarget", "SuccessCriteriaMet", "FailureTarget", "Guaranteed"),
    *("Always", "Never", "OnFailure", "IfNotPresent", "In", "NotIn", "Exists"),
    *("NoExecute", "NoSchedule", "ReadWriteOnce", "Retain", "Delete", "Block"),
    *("AlwaysAllow", "IfHealthyBudget", "ClusterIP", "NodePort"),
    *("Indexed", "NonIndexed", "TerminatingOrFailed", "FailJob", "FailIndex", "Ignore", "Count"),
)

WHOLE = (0, 1, 2, 3, 5, 10, -1, 100, 137, 255, 256, 65536, 2**31 - 1, 2**31, 2**63 - 1)

TIMES = (
    "2019-01-01T00:00:00Z",
    "2019-01-01T00:00:00.123456Z",
    "2019-01-01T00:00:00.1Z",
    "2019-06-01T02:00:00+02:00",
    "x",
    None,
)

SCALARS: Mapping[str, tuple[Any, ...]] = {
    "string": TEXTS,
    "bool": (True, False),
    "int32": WHOLE,
    "int64": WHOLE,
    "uint8": WHOLE,
    "float64": (0, 1.5),
    "bytes": ("", "Yg==", "e30=", "!"),
    "quantity": ("1", "500m", "1Gi", "0", "-1", "1e3", "1.5", 2, "0.1m", "x", "100M", "1Ki"),
    "time": TIMES,
    "microtime": TIMES,
    "duration": ("1s", "5m", "x"),
    "intorstring": (0, 1, "50%", "http", -1, "x", 80, "101%"),
}

# Of any type, for any field.
ANY: tuple[Any, ...] = (
    *(None, "", 0, 1, -1, 5.5, True, [], {}, "x", [1], ["a"], {"a": "b"}, {"a": 1}),
    *([{}], [{"name": "c"}], 99999999999, "2019-01-01T00:00:00Z", [None]),
)

KEYS = (
    *("a", "x/y", "app", "cpu", "memory", "storage", "k"),
    *("bad key", "kubernetes.io/x", "ephemeral-storage"),
)

# How often a value is one of ANY: rare enough that a deep object may be valid.
WRONG = 0.06

# If a fragment of a list names an element, the objects have that element.
MERGE_KEYS = ("c", "a", "x", "d", "Ready", "v")


def anything(random: Random) -> Any:
    return copy.deepcopy(random.choice(ANY))


def value(random: Random, kind: schema.Type, depth: int = 0) -> Any:
    """A value for a field of this type."""
    if random.random() < WRONG:
        return anything(random)
    if isinstance(kind, schema.Scalar):
        return random.choice(SCALARS.get(kind.kind, ({},)))
    if isinstance(kind, schema.Struct):
        return _struct(random, kind, depth)
    count = random.choice((0, 1, 1, 2))
    if isinstance(kind, schema.ListOf):
        return [value(random, kind.element, depth + 1) for _ in range(count)]
    return {random.choice(KEYS): value(random, kind.element, depth + 1) for _ in range(count)}


def _struct(random: Random, kind: schema.Struct, depth: int) -> dict[str, Any]:
    often = 0.5 if len(kind.fields) < 6 else 0.2 if depth < 3 else 0.1
    fields = {
        name: value(random, field.type, depth + 1)
        for name, field in kind.fields.items()
        if field.required or random.random() < often
    }
    if random.random() < 0.03:
        fields["unknownField"] = 1
    return fields


def fragment(random: Random, kind: schema.Struct) -> dict[str, Any]:
    """A part of an object: one way down the schema to one value."""
    if not kind.fields:
        return {}
    field = random.choice(list(kind.fields.values()))
    if isinstance(field.type, schema.Struct) and random.random() < 0.85:
        return {field.name: fragment(random, field.type)}
    if isinstance(field.type, schema.ListOf) and random.random() < 0.5:
        element = field.type.element
        if isinstance(element, schema.Struct):
            return {field.name: [_element(random, element, field.patch_merge_key)]}
    if random.random() < 0.1:
        return {field.name: None}
    return {field.name: value(random, field.type)}


def _element(random: Random, kind: schema.Struct, merge_key: str) -> dict[str, Any]:
    element = fragment(random, kind)
    if merge_key and random.random() < 0.8:
        element[merge_key] = random.choice(MERGE_KEYS)
    if random.random() < 0.1:
        element["$patch"] = random.choice(("delete", "replace", "merge", "x"))
    return element


def part(random: Random, kind: schema.Struct, parts: tuple[str, ...]) -> dict[str, Any]:
    """A fragment of one of these parts of a whole object."""
    name = random.choice(parts)
    if name == "metadata":
        return {"metadata": metadata(random)}
    if random.random() < 0.05:
        return {name: anything(random)}
    field = kind.fields[name]
    if isinstance(field.type, schema.Struct):
        return {name: fragment(random, field.type)}
    return {name: value(random, field.type)}


def _owner(**changes: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u", **changes}


_NUMBERS = (0, 5, -1, None)
_TIMES = (None, "2019-01-01T00:00:00Z", "x")
NEW_NAMES = ("x",)  # random names for an object, beside the names of the case
_NAMES = (*NEW_NAMES, None, "", "Bad Name")
_METADATA: Mapping[str, tuple[int, tuple[Any, ...]]] = {
    "labels": (
        8,
        (
            *({"app": "x"}, {"a": "b"}, {"app": None}, {"a": "-"}, None, {"a": 1}),
            *({"kubernetes.io/x": "y"}, {"a b": "c"}),
        ),
    ),
    "annotations": (
        8,
        (
            *({"x": "y"}, {"x": None}, None, {"a b": "c"}, {"a": 1}),
            {"kubernetes.io/x": "y", "z": ""},
        ),
    ),
    "finalizers": (
        6,
        (
            *(["a.b/c"], ["a.b/c", "d.e/f"], [], None, ["x"], [""], ["a.b/c/d"]),
            *(["foregroundDeletion"], ["orphan"], ["orphan", "foregroundDeletion"]),
            *(["kubernetes"], ["a.b/c", "a.b/c"]),
        ),
    ),
    "ownerReferences": (
        3,
        (
            *([_owner()], [], None, [_owner(), _owner()], [_owner(kind="Event")]),
            [
                _owner(controller=True, blockOwnerDeletion=True),
                _owner(name="b", uid="v", controller=True),
            ],
            [{"kind": "Pod", "name": "a", "uid": "u"}],
            [_owner(apiVersion="a/b/c", kind="", name="", uid="")],
        ),
    ),
    "deletionGracePeriodSeconds": (1, _NUMBERS),
    "generation": (1, _NUMBERS),
    "deletionTimestamp": (1, _TIMES),
    "creationTimestamp": (1, _TIMES),
    "generateName": (1, _NAMES),
    "uid": (1, _NAMES),
    "selfLink": (1, _NAMES),
    "resourceVersion": (1, _NAMES),
    "name": (1, _NAMES),
    "namespace": (1, _NAMES),
}


def metadata(random: Random) -> dict[str, Any]:
    """One field of an object's metadata."""
    weights = [weight for weight, _ in _METADATA.values()]
    name = random.choices(list(_METADATA), weights)[0]
    return {name: copy.deepcopy(random.choice(_METADATA[name][1]))}


def merged(random: Random, obj: Any, change: Any) -> Any:
    """An object with a change applied; lists of objects keep the first one with a change."""
    if not isinstance(obj, dict) or not isinstance(change, dict):
        return copy.deepcopy(change)
    return {**obj, **{key: _over(random, obj.get(key), new) for key, new in change.items()}}


def _over(random: Random, old: Any, new: Any) -> Any:
    if isinstance(old, dict):
        return merged(random, old, new)
    if _holds_objects(old) and _holds_objects(new) and random.random() < 0.6:
        return [merged(random, old[0], new[0]), *copy.deepcopy(old[1:])]
    return copy.deepcopy(new)


def _holds_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)
