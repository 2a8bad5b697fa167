# SPDX-License-Identifier: Apache-2.0
"""Random calls to two servers at once, and every answer compared.

The first server is the reference. Each case makes, changes and deletes two
objects of one kind in a namespace of the run, and takes them away at its end,
so that a case that fails can be run again alone.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import quote

from refloat.api import kinds
from tests.differential import calls, compare, known, values, watches
from tests.differential.answers import MERGE, NO_ANSWER, Answer, Call, Pair, Step
from tests.differential.scene import NAMES, Scene, collection, full_name

# How many of the cases begin with an apply, from which on both servers tell
# who owns which field.
TRACKED = 0.2

# How many of the cases are looked at as a watcher sees them, too.
WATCHED = 0.3

# Deleting takes a call, and one more to let go of what keeps an object.
_TRIES = 3


@dataclass
class Tally:
    """What a run has seen."""

    cases: int = 0
    calls: int = 0
    failures: list[str] = field(default_factory=list)
    codes: Counter[int] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        codes = " ".join(f"{code}:{count}" for code, count in sorted(self.codes.items()))
        return f"{self.cases} cases  {self.calls} calls  {len(self.failures)} differ  {codes}"


class Run:
    """All cases of a seed between two servers."""

    def __init__(self, pair: Pair, seed: int, only: Iterable[str] = ()) -> None:
        self._pair = pair
        self._seed = seed
        self._namespace = f"differential-{seed}"
        wanted = tuple(only)
        self._resources = [each for each in kinds.RESOURCES if not wanted or each.plural in wanted]
        self.tally = Tally()

    def prepare(self) -> None:
        """Make the namespace; what an earlier run left in it is taken away."""
        self.clean()
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._namespace}}
        for answer in self._pair.both(Call("POST", "/api/v1/namespaces", body)):
            if answer.status != 201:
                raise RuntimeError(f"no namespace {self._namespace}: {answer.body}")

    def case(self, number: int, tell: Callable[[Step], None] = lambda step: None) -> None:
        """Run one case to its first difference that no document names."""
        random = Random(f"{self._seed}/{number}")
        resource = random.choice(self._resources)
        tracked = random.random() < TRACKED
        scene = Scene(random, resource, self._namespace, self._pair, tracked)
        watch = watches.begin(scene) if random.random() < WATCHED else None
        self.tally.cases += 1
        try:
            for step in calls.steps(scene):
                tell(step)
                self._catch_up(scene, step)
                if not self._agree(number, step, tracked=tracked):
                    break
                self._let_go(scene)
            else:
                if watch is not None:
                    self._compare_watches(number, watch, tracked=tracked)
        finally:
            self._take_away(resource)

    def _catch_up(self, scene: Scene, step: Step) -> None:
        """Any version will do for such a read, and the reference's cache may be behind its writes;
        it is not after a list that must be of the newest."""
        if "resourceVersion=0" in step.left.path:
            self._pair.left.ask(Call("GET", scene.collection))

    def _agree(self, number: int, step: Step, *, tracked: bool) -> bool:
        """Do both answer alike, as far as the rest of a case can be compared?"""
        return self._judge(number, step, *self._pair.ask(step), tracked=tracked)

    def _compare_watches(self, number: int, watch: watches.Watch, *, tracked: bool) -> None:
        """Do both tell a watcher the same of all that the case did?"""
        if watch.put_last():
            self._judge(number, watch.step, *watch.histories(), tracked=tracked)

    def _judge(
        self, number: int, step: Step, left: Answer, right: Answer, *, tracked: bool
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
            row = known.of(known.Seen(step.left, left, right, each, tracked))
            if row is None:
                unknown.append(each)
            else:
                self.tally.known[row.row] += 1
                explained.add(row)
        if not unknown or (went_apart and explained):
            return not went_apart and not any(row.ends for row in explained)
        self.tally.failures.append(self._failure(number, step, unknown))
        return False

    def _failure(self, number: int, step: Step, found: list[compare.Difference]) -> str:
        names = (self._pair.left.name, self._pair.right.name)
        lines = [f"case {number}: {step.left}", *(compare.shown(each, names) for each in found)]
        replay = f"python -m tests.differential api --seed {self._seed} --case {number}"
        return "\n".join([*lines, f"  replay: {replay} --server NAME=KUBECONFIG (twice)"])

    # -- clearing up -------------------------------------------------------

    def _let_go(self, scene: Scene) -> None:
        """Take off what only the reference puts on claims and volumes, to compare deletes."""
        if scene.resource.plural not in ("persistentvolumes", "persistentvolumeclaims"):
            return
        for name in NAMES:
            name = full_name(scene.resource, self._namespace, name)
            path = f"{scene.collection}/{name}"
            found = self._pair.left.ask(Call("GET", path)).found or {}
            kept = found.get("metadata", {}).get("finalizers", [])
            rest = [each for each in kept if each not in known.PROTECTION]
            if rest != kept:
                body = {"metadata": {"finalizers": rest or None}}
                self._pair.left.ask(Call("PATCH", path, body, MERGE))

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
            for answer in self._pair.both(Call("GET", path)):
                names |= {each["metadata"]["name"] for each in (answer.found or {})["items"]}
        for name in sorted(names):
            self._remove(f"{path}/{quote(name)}", name, namespace=resource.plural == "namespaces")

    def _remove(self, path: str, name: str, *, namespace: bool) -> None:
        """Delete an object on both servers, whatever keeps it."""
        delete = Call("DELETE", f"{path}?gracePeriodSeconds=0&propagationPolicy=Background")
        free = Call("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)
        for _ in range(_TRIES):
            if all(answer.status == 404 for answer in self._pair.both(free)):
                return
            self._pair.both(delete)
            if namespace:
                body: Any = {"metadata": {"name": name}, "spec": {"finalizers": []}}
                self._pair.both(Call("PUT", f"{path}/finalize", body))

    def clean(self) -> None:
        """Leave nothing of the run on either server."""
        path = f"/api/v1/namespaces/{self._namespace}"
        present = [answer.status == 200 for answer in self._pair.both(Call("GET", path))]
        if any(present):
            for resource in kinds.RESOURCES:
                self._empty(resource)
            self._remove(path, self._namespace, namespace=True)
