# SPDX-License-Identifier: Apache-2.0
"""Random calls about two objects of one kind, each made from what is there now.

A case is short and ends with the objects, so that the case can be run again alone:
the calls follow from the seed, the number and the first server's answers.
"""

import copy
import itertools
import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from tests.differential import compare, objects, patches, reads, values
from tests.differential.answers import (
    APPLY,
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    ApiCall,
    CallPair,
    Raw,
)
from tests.differential.api_case import MANAGERS, ApiCase, Object

# Enough for objects to be made, changed, deleted and made again.
LENGTH = 10

_POLICIES = ("Background", "Foreground", "Orphan", "x")

# Of an object's metadata, what is each server's own.
_OWN = ("resourceVersion", "uid", "creationTimestamp", "deletionTimestamp")


def steps(case: ApiCase) -> Iterator[CallPair]:
    """The calls of one case."""
    yield CallPair.same(_apply_whole(case) if case.tracked else _create(case))
    operations = _operations(case)
    weights = [weight for weight, _ in operations]
    for _ in range(LENGTH):
        _, make = case.random.choices(operations, weights)[0]
        call = make(case)
        if call is not None:
            yield call if isinstance(call, CallPair) else CallPair.same(call)


Make = Callable[[ApiCase], ApiCall | CallPair | None]


def _operations(case: ApiCase) -> list[tuple[int, Make]]:
    operations: list[tuple[int, Make]] = [
        *([(6, _apply_whole)] if case.tracked else [(4, _create), (3, _put_fresh)]),
        (3, _put_changed),
        (8, _merge),
        (3, _json),
        (2, reads.get),
        (2, reads.listed),
        (1, reads.page),
        (1, reads.nowhere),
        (1, reads.refused_watch),
        (2, _delete),
        (1, _delete_all),
        (1, _garbage),
        (6 if case.tracked else 1, _apply),
        (1, _release),
    ]
    if case.has_status:
        operations += [
            (8, _merge_status),
            (3, _put_status),
            (1, _json_status),
            (1, reads.get_status),
        ]
    if case.resource.plural == "pods":
        operations += [(3, _evict), (3, _bind)]
        operations += [] if case.tracked else [(1, _budget), (1, _budget_status)]
    if case.resource.plural == "events":
        operations.append((2, reads.event_elsewhere))
    if case.resource.plural == "namespaces":
        operations.append((2, _finalize))
    return operations


# -- whole objects ------------------------------------------------------------


def _create(case: ApiCase) -> ApiCall:
    obj = case.fresh(case.name())
    if case.resource.namespaced and case.random.random() < 0.05:
        obj["metadata"] = _unnamed(case, obj["metadata"])
    return ApiCall("POST", case.collection + case.options(), obj, accept=case.form())


def _unnamed(case: ApiCase, metadata: Any) -> Any:
    if isinstance(metadata, dict):
        metadata.pop("name", None)
        metadata["generateName"] = case.random.choice(("made-", ""))
    return metadata


def _put_fresh(case: ApiCase) -> ApiCall:
    name = case.name()
    path = f"{case.collection}/{name}{case.options()}"
    return ApiCall("PUT", path, case.fresh(name), accept=case.form())


def _put_changed(case: ApiCase) -> CallPair | None:
    return _put(case, status=False)


def _put_status(case: ApiCase) -> CallPair | None:
    return _put(case, status=True)


def _put(case: ApiCase, *, status: bool) -> CallPair | None:
    name = case.name()
    now = case.current(name)
    if now is None:
        return None
    left = values.merged(case.random, _unmanaged(now[0]), case.change(status=status))
    right = as_of(left, *now)
    for key, chance in (("resourceVersion", 0.3), ("uid", 0.1)):
        if case.random.random() < chance:
            left, right = _without(left, key), _without(right, key)
    path = f"{case.collection}/{name}{'/status' if status else ''}{case.options()}"
    accept = case.form()
    return CallPair(
        ApiCall("PUT", path, left, accept=accept), ApiCall("PUT", path, right, accept=accept)
    )


def _unmanaged(obj: Object) -> Object:
    metadata = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    return {**obj, "metadata": metadata}


def _without(obj: Object, key: str) -> Object:
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        return obj
    return {**obj, "metadata": {name: value for name, value in metadata.items() if name != key}}


def as_of(obj: Object, left: Object, right: Object) -> Object:
    """The left server's object with the right server's ids; selectors of Jobs have uids too."""
    renamed: Object = _renamed(obj, left, right)
    metadata = renamed.get("metadata")
    if isinstance(metadata, dict):
        for key in _OWN:
            if key in right["metadata"] and metadata.get(key) == left["metadata"].get(key):
                metadata[key] = right["metadata"][key]
    return renamed


def _renamed(value: Any, left: Object, right: Object) -> Any:
    """With the right object's uid in place of the left one's, in every place."""
    text = json.dumps(value).replace(left["metadata"]["uid"], right["metadata"]["uid"])
    return _timed(json.loads(text), left, right)


def _timed(value: Any, left: Any, right: Any) -> Any:
    """With the right object's times where the value has the left one's."""
    if isinstance(value, dict) and isinstance(left, dict) and isinstance(right, dict):
        return {key: _timed(member, left.get(key), right.get(key)) for key, member in value.items()}
    lists = [each for each in (value, left, right) if isinstance(each, list)]
    if len(lists) == 3 and len(left) == len(right):
        pairs = itertools.zip_longest(value, left, right)
        return [_timed(*three) for three in itertools.islice(pairs, len(value))]
    is_own = value == left and isinstance(right, str) and compare.is_now(value)
    return right if is_own else value


# -- patches ------------------------------------------------------------------


def _merge(case: ApiCase) -> ApiCall:
    return _merging(case, status=False)


def _merge_status(case: ApiCase) -> ApiCall:
    return _merging(case, status=True)


def _merging(case: ApiCase, *, status: bool) -> ApiCall:
    media = case.random.choice((MERGE, STRATEGIC))
    patch = case.change(status=status)
    if case.random.random() < 0.05:
        key = case.random.choice(("kind", "apiVersion", "foo"))
        patch[key] = case.random.choice(("x", None, case.resource.kind, "v2"))
    if case.random.random() < 0.04:
        patch["metadata"] = {"resourceVersion": "1"}
    if media == STRATEGIC and case.random.random() < 0.1:
        patch = values.merged(case.random, patch, case.random.choice(patches.DIRECTIVES))
    path = f"{case.collection}/{case.name()}{'/status' if status else ''}{case.options()}"
    return ApiCall("PATCH", path, patch, media, case.form())


def _json(case: ApiCase) -> CallPair:
    return _json_patch(case, "")


def _json_status(case: ApiCase) -> CallPair:
    return _json_patch(case, "/status")


def _json_patch(case: ApiCase, below: str) -> CallPair:
    name = case.name()
    now = case.current(name)
    metadata = {"labels": {"a": "b"}}
    obj = {**now[0], "metadata": _stable(now[0]["metadata"])} if now else {"metadata": metadata}
    body = patches.json_patch(case.random, obj)
    path = f"{case.collection}/{name}{below}{case.options()}"
    other = _renamed(body, *now) if now else body
    return CallPair(
        ApiCall("PATCH", path, body, JSON_PATCH), ApiCall("PATCH", path, other, JSON_PATCH)
    )


def _stable(metadata: Object) -> Object:
    """Without the fields that differ between servers: a test of such a field would differ too."""
    left_out = (*_OWN, "managedFields")
    return {key: value for key, value in metadata.items() if key not in left_out}


def _apply_whole(case: ApiCase) -> ApiCall:
    name = case.name()
    path = f"{case.collection}/{name}?fieldManager={case.random.choice(MANAGERS)}"
    return ApiCall("PATCH", path, case.fresh(name), APPLY)


def _apply(case: ApiCase) -> ApiCall:
    name = case.name()
    status = case.has_status and case.random.random() < 0.3
    if not status and case.random.random() < 0.5:
        body = case.fresh(name)
    else:
        parts = ("status",) if status else case.parts
        change = values.part(case.random, case.struct, parts)
        body = case.identified(name, {}) | change
    query = [f"fieldManager={case.random.choice(MANAGERS)}"]
    if not case.tracked or case.random.random() < 0.4:
        query.append("force=true")
    query += case.random.choice(([], [], ["dryRun=All"], ["fieldValidation=Strict"]))
    path = f"{case.collection}/{name}{'/status' if status else ''}?{'&'.join(query)}"
    return ApiCall("PATCH", path, body, APPLY)


_TEXTS = (
    *("", "{", "null", "[]", "1", "true", '"x"', "{}", "kind: x", "- a", "a: b: c", "\\t", "{}{}"),
    *('{"kind":"x"}', '{"apiVersion":"v1","kind":"Pod","kind":"Job"}', '{"metadata":{"name":1}}'),
    *('{"metadata":null}', '{"a":', "[{}]", '[{"op":"x"}]', '{"kind":1}', '{"apiVersion":"a/b/c"}'),
)
_MEDIA = (
    *("application/json", "application/yaml", "text/plain", "application/json; charset=utf-8"),
    *(MERGE, STRATEGIC, JSON_PATCH, APPLY, "", "APPLICATION/JSON", "application/json;x"),
)


def _garbage(case: ApiCase) -> ApiCall:
    """A body that is no object, or not in the announced format."""
    method = case.random.choice(("POST", "PUT", "PATCH", "DELETE"))
    path = case.collection if method == "POST" else f"{case.collection}/{case.name()}"
    body, media = case.random.choice(_TEXTS), case.random.choice(_MEDIA)
    if method == "PATCH" and case.random.random() < 0.7:
        media = case.random.choice((MERGE, STRATEGIC, JSON_PATCH, APPLY))
    query = "?fieldManager=m1" if media == APPLY else ""
    return ApiCall(method, path + query, Raw(body), media)


def _release(case: ApiCase) -> ApiCall:
    """What was deleted and is kept by a finalizer may go, or is kept longer."""
    finalizers = case.random.choice((None, ["a.b/c"], ["d.e/f"]))
    path = f"{case.collection}/{case.name()}"
    return ApiCall("PATCH", path, {"metadata": {"finalizers": finalizers}}, MERGE)


# -- deletes ------------------------------------------------------------------


def _delete(case: ApiCase) -> CallPair:
    random, name = case.random, case.name()
    grace = f"gracePeriodSeconds={random.choice((0, 1, 5, 30, -1))}"
    policy = f"propagationPolicy={random.choice(_POLICIES)}"
    path = f"{case.collection}/{name}" + case.options(
        grace if random.random() < 0.3 else "", policy if random.random() < 0.4 else ""
    )
    accept = case.form()
    if random.random() < 0.7:
        return CallPair.same(ApiCall("DELETE", path, accept=accept))
    left = _delete_options(random)
    right = dict(left)
    now = case.current(name)
    if now is not None and random.random() < 0.4:
        left["preconditions"], right["preconditions"] = _preconditions(random, now)
    return CallPair(
        ApiCall("DELETE", path, left, accept=accept), ApiCall("DELETE", path, right, accept=accept)
    )


def _delete_options(random: Random) -> Object:
    choices: dict[str, tuple[float, tuple[Any, ...]]] = {
        "gracePeriodSeconds": (0.4, (0, 1, 7, -1, "x")),
        "propagationPolicy": (0.3, _POLICIES),
        "orphanDependents": (0.1, (True, False)),
        "dryRun": (0.2, (["All"], ["x"], [], ["All", "All"])),
        "ignoreStoreReadErrorWithClusterBreakingPotential": (0.1, (True, False)),
        "foo": (0.1, (1,)),
    }
    return {
        key: random.choice(options)
        for key, (chance, options) in choices.items()
        if random.random() < chance
    }


def _preconditions(random: Random, now: tuple[Object, Object]) -> tuple[Object, Object]:
    keys = ["uid"] if random.random() < 0.5 else ["uid", "resourceVersion"]
    left, right = ({key: obj["metadata"][key] for key in keys} for obj in now)
    return left, right


def _delete_all(case: ApiCase) -> ApiCall | None:
    random = case.random
    if case.resource.plural in ("services", "namespaces"):  # which have no such verb
        return None
    query = [reads.only(case, [random.choice(reads.SELECTORS)])]
    query += ["dryRun=All"] if random.random() < 0.3 else []
    query += ["gracePeriodSeconds=0"] if random.random() < 0.3 else []
    body = random.choice((None, None, {}, {"propagationPolicy": "Background"}))
    path = f"{case.collection}?{'&'.join(query)}"
    return ApiCall("DELETE", path, body, accept=case.form())


# -- what only some kinds have ------------------------------------------------


def _evict(case: ApiCase) -> ApiCall:
    random, name = case.random, case.name()
    eviction: Object = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    if random.random() < 0.3:
        eviction["deleteOptions"] = random.choice(
            (
                *({"gracePeriodSeconds": 3}, {"gracePeriodSeconds": 0}, {"dryRun": ["All"]}),
                *({"propagationPolicy": "Foreground"}, {"preconditions": {"uid": "x"}}),
                *({"foo": 1}, {"gracePeriodSeconds": -2}),
            )
        )
    if random.random() < 0.1:
        others: tuple[Object, ...] = ({}, {"name": "zz"}, {"name": name, "namespace": "x"})
        eviction["metadata"] = random.choice(others)
    return ApiCall("POST", f"{case.collection}/{name}/eviction{case.options()}", eviction)


def _bind(case: ApiCase) -> ApiCall:
    random, name = case.random, case.name()
    target: Object = {"kind": "Node", "name": random.choice(("n1", "n2", ""))}
    if random.random() < 0.1:
        others: tuple[Object, ...] = (
            *({}, {"kind": "Pod", "name": "x"}, {"name": "n1"}, {"kind": "Node", "name": "-"}),
            {"kind": "Node", "name": "n1", "namespace": "q", "uid": "u", "apiVersion": "v2"},
        )
        target = random.choice(others)
    metadata: Object = {"name": name}
    if random.random() < 0.3:
        metadata = random.choice(
            (
                *({}, {"name": "zz"}, {"name": name, "annotations": {"z": "1"}}),
                *({"name": name, "labels": {"z": "1"}}, {"name": name, "uid": "x"}),
                *({"name": name, "resourceVersion": "1"}, {"name": name, "namespace": "x"}),
            )
        )
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    return ApiCall("POST", f"{case.collection}/{name}/binding{case.options()}", binding)


_BUDGETS = "poddisruptionbudgets"


def _budgets(case: ApiCase) -> str:
    return f"/apis/policy/v1/namespaces/{case.namespace}/{_BUDGETS}"


def _budget(case: ApiCase) -> ApiCall:
    spec = copy.deepcopy(case.random.choice(objects.bases("policy", _BUDGETS, "")))
    kind = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
    return ApiCall("POST", _budgets(case), {**kind, "metadata": {"name": "a"}, **spec})


def _budget_status(case: ApiCase) -> ApiCall:
    random = case.random
    status = {
        "observedGeneration": random.choice((0, 1, 2)),
        "disruptionsAllowed": random.choice((0, 1)),
        "currentHealthy": random.choice((0, 1, 2)),
        "desiredHealthy": 1,
        "expectedPods": 2,
    }
    return ApiCall("PATCH", f"{_budgets(case)}/a/status", {"status": status}, MERGE)


def _finalize(case: ApiCase) -> ApiCall:
    name = case.name()
    wish = case.random.choice(([], ["kubernetes"], ["x"], ["a.b/c"]))
    metadata = {"name": case.random.choice((name,) * 4 + ("x",)), "labels": {"l": "1"}}
    kind = {"apiVersion": "v1", "kind": "Namespace"}
    body = {**kind, "metadata": metadata, "spec": {"finalizers": wish}}
    return ApiCall("PUT", f"{case.collection}/{name}/finalize{case.options()}", body)
