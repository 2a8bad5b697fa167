# SPDX-License-Identifier: Apache-2.0
"""Compares what a watcher of each server receives, when the case is over.

A watch from the revision before the case replays what happened. One more
object ends the watch, so that no case waits for a watch to time out.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.differential import compare, objects
from tests.differential.answers import ApiCall, CallPair, ComparedAnswer
from tests.differential.api_case import NAMES, ApiCase, Object, full_name

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

# The reference writes these itself, see `Run._let_go`.
_NOT_WATCHED = ("persistentvolumes", "persistentvolumeclaims")


@dataclass(frozen=True)
class ComparedWatch:
    """A watch that has not been asked for yet."""

    case: ApiCase
    step: CallPair

    def put_last(self) -> bool:
        """Make the object that ends the watch."""
        case = self.case
        bases = objects.bases(case.resource.group, case.resource.plural, case.namespace)
        obj = case.identified(self._name(LAST), copy.deepcopy(bases[0]))
        obj["metadata"]["labels"] = {"app": "x"}
        answers = case.pair.both(ApiCall("POST", case.collection, obj))
        return all(answer.status == 201 for answer in answers)

    def _name(self, name: str) -> str:
        return full_name(self.case.resource, self.case.namespace, name)

    def histories(self) -> tuple[ComparedAnswer, ComparedAnswer]:
        """The events of each server about the objects of the case."""
        ours = {self._name(name) for name in (*NAMES, LAST)}
        last = self._name(LAST)
        left, right = self.case.pair.follow(
            self.step, lambda event: event["type"] == "ERROR" or _name(event) == last
        )
        return history(left, ours), history(right, ours)


def begin(case: ApiCase) -> ComparedWatch | None:
    """A watch from now on."""
    if case.resource.plural in _NOT_WATCHED:
        return None
    form, selector = case.random.choice(_FORMS), case.random.choice(_SELECTORS)
    since = [
        (answer.found or {})["metadata"]["resourceVersion"]
        for answer in case.pair.both(ApiCall("GET", f"{case.collection}?limit=1"))
    ]
    left, right = (
        ApiCall("GET", f"{case.collection}?watch=1&resourceVersion={each}{selector}", accept=form)
        for each in since
    )
    return ComparedWatch(case, CallPair(left, right))


def _name(event: Object) -> str:
    obj = event["object"]
    if obj.get("kind") == "Table":
        obj = obj["rows"][0]["object"]
    return str(obj["metadata"].get("name", ""))


def history(answer: ComparedAnswer, ours: set[str]) -> ComparedAnswer:
    """The events about these objects that both servers must send."""
    if not isinstance(answer.body, list):
        return answer
    return ComparedAnswer(answer.status, {"items": list(_changes(answer.body, ours))})


def _changes(events: list[Object], ours: set[str]) -> Iterator[Object]:
    """Without what only the reference writes: who owns which field."""
    before: dict[str, Any] = {}
    for event in events:
        if event["type"] != "ERROR" and _name(event) not in ours:
            continue
        change = compare.normal(_unowned(event))
        if before.get(_name(event)) != change["object"] or change["type"] != "MODIFIED":
            yield change
        before[_name(event)] = change["object"]


def _unowned(value: Any) -> Any:
    """Without owners of fields, and the columns that stand in one event of many."""
    if isinstance(value, dict):
        left_out = ("managedFields", "columnDefinitions")
        return {key: _unowned(item) for key, item in value.items() if key not in left_out}
    return [_unowned(item) for item in value] if isinstance(value, list) else value
