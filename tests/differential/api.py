# SPDX-License-Identifier: Apache-2.0
"""Random calls to two servers at once, and every answer compared.

The first server is the reference. Each case makes, changes and deletes two
objects of one kind in a namespace of the run, and takes them away at the end,
so that a case that fails can be run again alone.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import quote

from refloat.api import kinds
from tests.differential import calls, compare, known_differences, values, watches
from tests.differential.answers import (
    MERGE,
    NO_ANSWER,
    ApiCall,
    CallPair,
    ComparedAnswer,
    ServerPair,
)
from tests.differential.api_case import NAMES, ApiCase, collection, full_name

# How many of the cases begin with an apply, from which on both servers show
# who owns which field.
TRACKED = 0.2

# How many of the cases are looked at as a watcher sees them, too.
WATCHED = 0.3

# Deleting takes a call, and one more to let go of what keeps an object.
_TRIES = 3


@dataclass
class ApiTally:
    """What a run has seen."""

    cases: int = 0
    calls: int = 0
    failures: list[str] = field(default_factory=list)
    codes: Counter[int] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        codes = " ".join(f"{code}:{count}" for code, count in sorted(self.codes.items()))
        return f"{self.cases} cases  {self.calls} calls  {len(self.failures)} differ  {codes}"


class ApiRun:
    """All cases of a seed between two servers."""

    def __init__(self, pair: ServerPair, seed: int, only: Iterable[str] = ()) -> None:
        self._pair = pair
        self._seed = seed
        self._namespace = f"differential-{seed}"
        selection = tuple(only)
        self._resources = [
            each for each in kinds.RESOURCES if not selection or each.plural in selection
        ]
        self.tally = ApiTally()

    def prepare(self) -> None:
        """Make the namespace; what an earlier run left in the namespace is taken away."""
        self.clean()
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._namespace}}
        for answer in self._pair.both(ApiCall("POST", "/api/v1/namespaces", body)):
            if answer.status != 201:
                raise RuntimeError(f"no namespace {self._namespace}: {answer.body}")

    def case(self, number: int, tell: Callable[[CallPair], None] = lambda step: None) -> None:
        """Run one case to the first difference that no document names."""
        random = Random(f"{self._seed}/{number}")
        resource = random.choice(self._resources)
        tracked = random.random() < TRACKED
        case = ApiCase(random, resource, self._namespace, self._pair, tracked)
        watch = watches.begin(case) if random.random() < WATCHED else None
        self.tally.cases += 1
        try:
            for step in calls.steps(case):
                tell(step)
                self._catch_up(case, step)
                if not self._agree(number, step, tracked=tracked):
                    break
                self._let_go(case)
            else:
                if watch is not None:
                    self._compare_watches(number, watch, tracked=tracked)
        finally:
            self._take_away(resource)

    def _catch_up(self, case: ApiCase, step: CallPair) -> None:
        """A read of any version may be older than the writes: list once to update the cache."""
        if "resourceVersion=0" in step.left.path:
            self._pair.left.ask(ApiCall("GET", case.collection))

    def _agree(self, number: int, step: CallPair, *, tracked: bool) -> bool:
        """Do both answer alike, as far as the rest of a case can be compared?"""
        return self._judge(number, step, *self._pair.ask(step), tracked=tracked)

    def _compare_watches(self, number: int, watch: watches.ComparedWatch, *, tracked: bool) -> None:
        """Do both servers send a watcher the same events of the case?"""
        if watch.put_last():
            self._judge(number, watch.step, *watch.histories(), tracked=tracked)

    def _judge(
        self,
        number: int,
        step: CallPair,
        left: ComparedAnswer,
        right: ComparedAnswer,
        *,
        tracked: bool,
    ) -> bool:
        self.tally.calls += 1
        self.tally.codes[left.status] += 1
        if left is NO_ANSWER:
            self.tally.known["(the reference closed the connection)"] += 1
            return False
        went_apart = left.status != right.status
        unknown = []
        explained = set()
        for each in compare.differences(left, right):
            row = known_differences.of(
                known_differences.Deviation(step.left, left, right, each, tracked)
            )
            if row is None:
                unknown.append(each)
            else:
                self.tally.known[row.row] += 1
                explained.add(row)
        if not unknown or (went_apart and explained):
            return not went_apart and not any(row.ends for row in explained)
        self.tally.failures.append(self._failure(number, step, unknown))
        return False

    def _failure(
        self, number: int, step: CallPair, differences: list[compare.AnswerDifference]
    ) -> str:
        names = (self._pair.left.name, self._pair.right.name)
        lines = [
            f"case {number}: {step.left}",
            *(compare.shown(each, names) for each in differences),
        ]
        replay = f"python -m tests.differential api --seed {self._seed} --case {number}"
        return "\n".join([*lines, f"  replay: {replay} --server NAME=KUBECONFIG (twice)"])

    # -- clearing up -------------------------------------------------------

    def _let_go(self, case: ApiCase) -> None:
        """Take off what only the reference puts on claims and volumes, to compare deletes."""
        if case.resource.plural not in ("persistentvolumes", "persistentvolumeclaims"):
            return
        for name in NAMES:
            name = full_name(case.resource, self._namespace, name)
            path = f"{case.collection}/{name}"
            obj = self._pair.left.ask(ApiCall("GET", path)).found or {}
            finalizers = obj.get("metadata", {}).get("finalizers", [])
            rest = [each for each in finalizers if each not in known_differences.PROTECTION]
            if rest != finalizers:
                body = {"metadata": {"finalizers": rest or None}}
                self._pair.left.ask(ApiCall("PATCH", path, body, MERGE))

    def _take_away(self, resource: kinds.Resource) -> None:
        related = ["poddisruptionbudgets"] if resource.plural == "pods" else []
        for each in kinds.RESOURCES:
            if each is resource or each.plural in related:
                self._empty(each)

    def _empty(self, resource: kinds.Resource) -> None:
        path = collection(resource, self._namespace)
        names = {full_name(resource, self._namespace, name) for name in NAMES}
        if not resource.namespaced:
            names |= {*values.NEW_NAMES, full_name(resource, self._namespace, watches.LAST)}
        else:
            for answer in self._pair.both(ApiCall("GET", path)):
                names |= {each["metadata"]["name"] for each in (answer.found or {})["items"]}
        for name in sorted(names):
            self._remove(f"{path}/{quote(name)}", name, namespace=resource.plural == "namespaces")

    def _remove(self, path: str, name: str, *, namespace: bool) -> None:
        """Delete an object on both servers, whatever keeps the object."""
        delete = ApiCall("DELETE", f"{path}?gracePeriodSeconds=0&propagationPolicy=Background")
        free = ApiCall("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)
        for _ in range(_TRIES):
            if all(answer.status == 404 for answer in self._pair.both(free)):
                return
            self._pair.both(delete)
            if namespace:
                body: Any = {"metadata": {"name": name}, "spec": {"finalizers": []}}
                self._pair.both(ApiCall("PUT", f"{path}/finalize", body))

    def clean(self) -> None:
        """Leave nothing of the run on either server."""
        path = f"/api/v1/namespaces/{self._namespace}"
        present = [answer.status == 200 for answer in self._pair.both(ApiCall("GET", path))]
        if any(present):
            for resource in kinds.RESOURCES:
                self._empty(resource)
            self._remove(path, self._namespace, namespace=True)
