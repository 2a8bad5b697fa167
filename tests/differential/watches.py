# SPDX-License-Identifier: Apache-2.0
"""What a watcher is told of a case, compared when the case is over.

A watch from the revision before the case replays what happened. One more
object ends it, so that nobody waits for a watch to time out.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.differential import compare, objects
from tests.differential.answers import Answer, Call, Step
from tests.differential.scene import NAMES, Object, Scene, full_name

LAST = "z"

_META = "v=v1;g=meta.k8s.io"
_FORMS = (
    *("application/json",) * 3,
    f"application/json;as=Table;{_META}",
    f"application/json;as=PartialObjectMetadata;{_META}",
)
# All of them select the last object.
_SELECTORS = (
    "",
    "",
    "&labelSelector=app=x",
    "&labelSelector=a!=b",
    "&fieldSelector=metadata.name!=a",
)

# The reference has writes of its own on these, see `Run._let_go`.
_NOT_WATCHED = ("persistentvolumes", "persistentvolumeclaims")


@dataclass(frozen=True)
class Watch:
    """A watch that has not been asked for yet."""

    scene: Scene
    step: Step

    def put_last(self) -> bool:
        """Make the object that ends the watch."""
        scene = self.scene
        known = objects.bases(scene.resource.group, scene.resource.plural, scene.namespace)
        made = scene.identified(self._name(LAST), copy.deepcopy(known[0]))
        made["metadata"]["labels"] = {"app": "x"}
        answers = scene.pair.both(Call("POST", scene.collection, made))
        return all(answer.status == 201 for answer in answers)

    def _name(self, name: str) -> str:
        return full_name(self.scene.resource, self.scene.namespace, name)

    def histories(self) -> tuple[Answer, Answer]:
        """What each tells of the objects of the case."""
        ours = {self._name(name) for name in (*NAMES, LAST)}
        last = self._name(LAST)
        left, right = self.scene.pair.follow(
            self.step, lambda event: event["type"] == "ERROR" or _name(event) == last
        )
        return history(left, ours), history(right, ours)


def begin(scene: Scene) -> Watch | None:
    """A watch from now on."""
    if scene.resource.plural in _NOT_WATCHED:
        return None
    form, selector = scene.random.choice(_FORMS), scene.random.choice(_SELECTORS)
    since = [
        (answer.found or {})["metadata"]["resourceVersion"]
        for answer in scene.pair.both(Call("GET", f"{scene.collection}?limit=1"))
    ]
    left, right = (
        Call("GET", f"{scene.collection}?watch=1&resourceVersion={each}{selector}", accept=form)
        for each in since
    )
    return Watch(scene, Step(left, right))


def _name(event: Object) -> str:
    obj = event["object"]
    if obj.get("kind") == "Table":
        obj = obj["rows"][0]["object"]
    return str(obj["metadata"].get("name", ""))


def history(answer: Answer, ours: set[str]) -> Answer:
    """The events about these objects that both servers should tell alike."""
    if not isinstance(answer.body, list):
        return answer
    return Answer(answer.status, {"items": list(_changes(answer.body, ours))})


def _changes(events: list[Object], ours: set[str]) -> Iterator[Object]:
    """Without what only the reference writes: who owns which field."""
    before: dict[str, Any] = {}
    for event in events:
        if event["type"] != "ERROR" and _name(event) not in ours:
            continue
        told = compare.normal(_unowned(event))
        if before.get(_name(event)) != told["object"] or told["type"] != "MODIFIED":
            yield told
        before[_name(event)] = told["object"]


def _unowned(value: Any) -> Any:
    """Without owners of fields, and the columns that stand in one event of many."""
    if isinstance(value, dict):
        left_out = ("managedFields", "columnDefinitions")
        return {key: _unowned(held) for key, held in value.items() if key not in left_out}
    return [_unowned(held) for held in value] if isinstance(value, list) else value
