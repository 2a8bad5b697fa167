# SPDX-License-Identifier: Apache-2.0
"""Random calls about two objects of one kind, each made from what is there now.

A case is short and ends with its objects, so that it can be run again alone:
what it does follows from its seed, its number and the first server's answers.
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
    Call,
    Raw,
    Step,
)
from tests.differential.scene import MANAGERS, Object, Scene

# Enough for objects to be made, changed, deleted and made again.
LENGTH = 10

_POLICIES = ("Background", "Foreground", "Orphan", "x")

# Of an object's metadata, what is each server's own.
_OWN = ("resourceVersion", "uid", "creationTimestamp", "deletionTimestamp")


def steps(scene: Scene) -> Iterator[Step]:
    """The calls of one case."""
    yield Step.same(_apply_whole(scene) if scene.tracked else _create(scene))
    made = _operations(scene)
    weights = [weight for weight, _ in made]
    for _ in range(LENGTH):
        _, make = scene.random.choices(made, weights)[0]
        found = make(scene)
        if found is not None:
            yield found if isinstance(found, Step) else Step.same(found)


Make = Callable[[Scene], Call | Step | None]


def _operations(scene: Scene) -> list[tuple[int, Make]]:
    found: list[tuple[int, Make]] = [
        *([(6, _apply_whole)] if scene.tracked else [(4, _create), (3, _put_fresh)]),
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
        (6 if scene.tracked else 1, _apply),
        (1, _release),
    ]
    if scene.has_status:
        found += [(8, _merge_status), (3, _put_status), (1, _json_status), (1, reads.get_status)]
    if scene.resource.plural == "pods":
        found += [(3, _evict), (3, _bind)]
        found += [] if scene.tracked else [(1, _budget), (1, _budget_status)]
    if scene.resource.plural == "events":
        found.append((2, reads.event_elsewhere))
    if scene.resource.plural == "namespaces":
        found.append((2, _finalize))
    return found


# -- whole objects ------------------------------------------------------------


def _create(scene: Scene) -> Call:
    made = scene.fresh(scene.name())
    if scene.resource.namespaced and scene.random.random() < 0.05:
        made["metadata"] = _unnamed(scene, made["metadata"])
    return Call("POST", scene.collection + scene.options(), made, accept=scene.form())


def _unnamed(scene: Scene, metadata: Any) -> Any:
    if isinstance(metadata, dict):
        metadata.pop("name", None)
        metadata["generateName"] = scene.random.choice(("made-", ""))
    return metadata


def _put_fresh(scene: Scene) -> Call:
    name = scene.name()
    path = f"{scene.collection}/{name}{scene.options()}"
    return Call("PUT", path, scene.fresh(name), accept=scene.form())


def _put_changed(scene: Scene) -> Step | None:
    return _put(scene, status=False)


def _put_status(scene: Scene) -> Step | None:
    return _put(scene, status=True)


def _put(scene: Scene, *, status: bool) -> Step | None:
    name = scene.name()
    now = scene.current(name)
    if now is None:
        return None
    left = values.merged(scene.random, _unmanaged(now[0]), scene.change(status=status))
    right = as_of(left, *now)
    for key, chance in (("resourceVersion", 0.3), ("uid", 0.1)):
        if scene.random.random() < chance:
            left, right = _without(left, key), _without(right, key)
    path = f"{scene.collection}/{name}{'/status' if status else ''}{scene.options()}"
    accept = scene.form()
    return Step(Call("PUT", path, left, accept=accept), Call("PUT", path, right, accept=accept))


def _unmanaged(obj: Object) -> Object:
    metadata = {key: held for key, held in obj["metadata"].items() if key != "managedFields"}
    return {**obj, "metadata": metadata}


def _without(obj: Object, key: str) -> Object:
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        return obj
    return {**obj, "metadata": {name: held for name, held in metadata.items() if name != key}}


def as_of(obj: Object, left: Object, right: Object) -> Object:
    """The left server's object as the right one knows it; selectors of Jobs have uids too."""
    made: Object = _renamed(obj, left, right)
    metadata = made.get("metadata")
    if isinstance(metadata, dict):
        for key in _OWN:
            if key in right["metadata"] and metadata.get(key) == left["metadata"].get(key):
                metadata[key] = right["metadata"][key]
    return made


def _renamed(value: Any, left: Object, right: Object) -> Any:
    """With the right object's uid in place of the left one's, wherever it is."""
    text = json.dumps(value).replace(left["metadata"]["uid"], right["metadata"]["uid"])
    return _timed(json.loads(text), left, right)


def _timed(value: Any, left: Any, right: Any) -> Any:
    """With the right object's times where the value has the left one's."""
    if isinstance(value, dict) and isinstance(left, dict) and isinstance(right, dict):
        return {key: _timed(held, left.get(key), right.get(key)) for key, held in value.items()}
    lists = [each for each in (value, left, right) if isinstance(each, list)]
    if len(lists) == 3 and len(left) == len(right):
        pairs = itertools.zip_longest(value, left, right)
        return [_timed(*three) for three in itertools.islice(pairs, len(value))]
    is_own = value == left and isinstance(right, str) and compare.is_now(value)
    return right if is_own else value


# -- patches ------------------------------------------------------------------


def _merge(scene: Scene) -> Call:
    return _merging(scene, status=False)


def _merge_status(scene: Scene) -> Call:
    return _merging(scene, status=True)


def _merging(scene: Scene, *, status: bool) -> Call:
    media = scene.random.choice((MERGE, STRATEGIC))
    made = scene.change(status=status)
    if scene.random.random() < 0.05:
        key = scene.random.choice(("kind", "apiVersion", "foo"))
        made[key] = scene.random.choice(("x", None, scene.resource.kind, "v2"))
    if scene.random.random() < 0.04:
        made["metadata"] = {"resourceVersion": "1"}
    if media == STRATEGIC and scene.random.random() < 0.1:
        made = values.merged(scene.random, made, scene.random.choice(patches.DIRECTIVES))
    path = f"{scene.collection}/{scene.name()}{'/status' if status else ''}{scene.options()}"
    return Call("PATCH", path, made, media, scene.form())


def _json(scene: Scene) -> Step:
    return _json_patch(scene, "")


def _json_status(scene: Scene) -> Step:
    return _json_patch(scene, "/status")


def _json_patch(scene: Scene, below: str) -> Step:
    name = scene.name()
    now = scene.current(name)
    metadata = {"labels": {"a": "b"}}
    known = {**now[0], "metadata": _stable(now[0]["metadata"])} if now else {"metadata": metadata}
    body = patches.json_patch(scene.random, known)
    path = f"{scene.collection}/{name}{below}{scene.options()}"
    other = _renamed(body, *now) if now else body
    return Step(Call("PATCH", path, body, JSON_PATCH), Call("PATCH", path, other, JSON_PATCH))


def _stable(metadata: Object) -> Object:
    """Without what differs between servers: a test of it would too."""
    left_out = (*_OWN, "managedFields")
    return {key: held for key, held in metadata.items() if key not in left_out}


def _apply_whole(scene: Scene) -> Call:
    name = scene.name()
    path = f"{scene.collection}/{name}?fieldManager={scene.random.choice(MANAGERS)}"
    return Call("PATCH", path, scene.fresh(name), APPLY)


def _apply(scene: Scene) -> Call:
    name = scene.name()
    status = scene.has_status and scene.random.random() < 0.3
    if not status and scene.random.random() < 0.5:
        body = scene.fresh(name)
    else:
        parts = ("status",) if status else scene.parts
        change = values.part(scene.random, scene.struct, parts)
        body = scene.identified(name, {}) | change
    query = [f"fieldManager={scene.random.choice(MANAGERS)}"]
    if not scene.tracked or scene.random.random() < 0.4:
        query.append("force=true")
    query += scene.random.choice(([], [], ["dryRun=All"], ["fieldValidation=Strict"]))
    path = f"{scene.collection}/{name}{'/status' if status else ''}?{'&'.join(query)}"
    return Call("PATCH", path, body, APPLY)


_TEXTS = (
    *("", "{", "null", "[]", "1", "true", '"x"', "{}", "kind: x", "- a", "a: b: c", "\\t", "{}{}"),
    *('{"kind":"x"}', '{"apiVersion":"v1","kind":"Pod","kind":"Job"}', '{"metadata":{"name":1}}'),
    *('{"metadata":null}', '{"a":', "[{}]", '[{"op":"x"}]', '{"kind":1}', '{"apiVersion":"a/b/c"}'),
)
_MEDIA = (
    *("application/json", "application/yaml", "text/plain", "application/json; charset=utf-8"),
    *(MERGE, STRATEGIC, JSON_PATCH, APPLY, "", "APPLICATION/JSON", "application/json;x"),
)


def _garbage(scene: Scene) -> Call:
    """A body that is no object, or not in the form that is said."""
    method = scene.random.choice(("POST", "PUT", "PATCH", "DELETE"))
    path = scene.collection if method == "POST" else f"{scene.collection}/{scene.name()}"
    body, media = scene.random.choice(_TEXTS), scene.random.choice(_MEDIA)
    if method == "PATCH" and scene.random.random() < 0.7:
        media = scene.random.choice((MERGE, STRATEGIC, JSON_PATCH, APPLY))
    query = "?fieldManager=m1" if media == APPLY else ""
    return Call(method, path + query, Raw(body), media)


def _release(scene: Scene) -> Call:
    """What was deleted and is kept by a finalizer may go, or is kept longer."""
    kept = scene.random.choice((None, ["a.b/c"], ["d.e/f"]))
    path = f"{scene.collection}/{scene.name()}"
    return Call("PATCH", path, {"metadata": {"finalizers": kept}}, MERGE)


# -- deletes ------------------------------------------------------------------


def _delete(scene: Scene) -> Step:
    random, name = scene.random, scene.name()
    grace = f"gracePeriodSeconds={random.choice((0, 1, 5, 30, -1))}"
    policy = f"propagationPolicy={random.choice(_POLICIES)}"
    path = f"{scene.collection}/{name}" + scene.options(
        grace if random.random() < 0.3 else "", policy if random.random() < 0.4 else ""
    )
    accept = scene.form()
    if random.random() < 0.7:
        return Step.same(Call("DELETE", path, accept=accept))
    left = _delete_options(random)
    right = dict(left)
    now = scene.current(name)
    if now is not None and random.random() < 0.4:
        left["preconditions"], right["preconditions"] = _preconditions(random, now)
    return Step(
        Call("DELETE", path, left, accept=accept), Call("DELETE", path, right, accept=accept)
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


def _delete_all(scene: Scene) -> Call | None:
    random = scene.random
    if scene.resource.plural in ("services", "namespaces"):  # which have no such verb
        return None
    query = [reads.only(scene, [random.choice(reads.SELECTORS)])]
    query += ["dryRun=All"] if random.random() < 0.3 else []
    query += ["gracePeriodSeconds=0"] if random.random() < 0.3 else []
    body = random.choice((None, None, {}, {"propagationPolicy": "Background"}))
    path = f"{scene.collection}?{'&'.join(query)}"
    return Call("DELETE", path, body, accept=scene.form())


# -- what only some kinds have ------------------------------------------------


def _evict(scene: Scene) -> Call:
    random, name = scene.random, scene.name()
    made: Object = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    if random.random() < 0.3:
        made["deleteOptions"] = random.choice(
            (
                *({"gracePeriodSeconds": 3}, {"gracePeriodSeconds": 0}, {"dryRun": ["All"]}),
                *({"propagationPolicy": "Foreground"}, {"preconditions": {"uid": "x"}}),
                *({"foo": 1}, {"gracePeriodSeconds": -2}),
            )
        )
    if random.random() < 0.1:
        others: tuple[Object, ...] = ({}, {"name": "zz"}, {"name": name, "namespace": "x"})
        made["metadata"] = random.choice(others)
    return Call("POST", f"{scene.collection}/{name}/eviction{scene.options()}", made)


def _bind(scene: Scene) -> Call:
    random, name = scene.random, scene.name()
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
    made = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    return Call("POST", f"{scene.collection}/{name}/binding{scene.options()}", made)


_BUDGETS = "poddisruptionbudgets"


def _budgets(scene: Scene) -> str:
    return f"/apis/policy/v1/namespaces/{scene.namespace}/{_BUDGETS}"


def _budget(scene: Scene) -> Call:
    spec = copy.deepcopy(scene.random.choice(objects.bases("policy", _BUDGETS, "")))
    kind = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
    return Call("POST", _budgets(scene), {**kind, "metadata": {"name": "a"}, **spec})


def _budget_status(scene: Scene) -> Call:
    random = scene.random
    status = {
        "observedGeneration": random.choice((0, 1, 2)),
        "disruptionsAllowed": random.choice((0, 1)),
        "currentHealthy": random.choice((0, 1, 2)),
        "desiredHealthy": 1,
        "expectedPods": 2,
    }
    return Call("PATCH", f"{_budgets(scene)}/a/status", {"status": status}, MERGE)


def _finalize(scene: Scene) -> Call:
    name = scene.name()
    wish = scene.random.choice(([], ["kubernetes"], ["x"], ["a.b/c"]))
    metadata = {"name": scene.random.choice((name,) * 4 + ("x",)), "labels": {"l": "1"}}
    kind = {"apiVersion": "v1", "kind": "Namespace"}
    body = {**kind, "metadata": metadata, "spec": {"finalizers": wish}}
    return Call("PUT", f"{scene.collection}/{name}/finalize{scene.options()}", body)
