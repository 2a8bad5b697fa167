# SPDX-License-Identifier: Apache-2.0
"""Who has to wait for the budget or for the nodes, and who comes next.

Pods that the budget holds stand in a line in which namespaces take turns, and as
many are let go as slots come free: were all of them looked at for each slot, ten
thousand zombies would be a hundred million looks. What the hold by nodes keeps is
let go at once when it ends. Each cause is told once for each node, until it is over.
"""

import operator
from collections.abc import Callable, Iterable

from refloat.api import durations, structs, times
from refloat.api.core import Node, Pod
from refloat.base.clock import Clock
from refloat.controllers.failure_recovery.events import Teller
from refloat.controllers.failure_recovery.metrics import FailureRecoveryMetrics
from refloat.controllers.failure_recovery.scene import Scene
from refloat.policy import zombie
from refloat.policy.recovery_bounds import Ledger, Line

# The precision of the times in conditions.
_WHOLE_SECOND = 1.0

BUDGET, NODES = "Budget", "UnreachableNodes"


class Bounds:
    def __init__(
        self, scene: Scene, teller: Teller, clock: Clock, metrics: FailureRecoveryMetrics
    ) -> None:
        self._scene = scene
        self._teller = teller
        self._clock = clock
        self._ledger = Ledger(None)
        self._line = Line()
        # By the uid of a pod, when it was made to fail: those that the ledger counts, and those
        # that a write is under way for. The oldest come first.
        self._counted: dict[str, float] = {}
        self._slots: dict[str, Ledger] = {}  # key of a pod -> where it has a slot
        self._held: dict[str, None] = {}  # keys of pods, and names, that the nodes hold
        self._told: dict[tuple[str, str], None] = {}  # cause and node
        metrics.read_held(BUDGET, lambda: len(self._line))
        metrics.read_held(NODES, lambda: len(self._held))

    def begin(self) -> None:
        """The process begins: what others spent before it is read off the pods."""
        self._counted = self._noted()
        self._ledger = Ledger(self._scene.settings.policy.budget, self._counted.values())
        self._slots.clear()
        self._let_go()

    def take_up(self) -> None:
        """The settings are new, or another process led meanwhile: nobody waits any more.

        What is spent goes on to count, also what writes under way will spend, and what another
        process spent.
        """
        for slot in self._slots.values():
            slot.give_back()
        self._slots.clear()
        noted = self._noted()
        self._ledger.add(at for uid, at in noted.items() if uid not in self._counted)
        budget = self._scene.settings.policy.budget
        self._ledger.change(budget, self._clock.monotonic(), noted.values())
        self._counted = noted | self._counted
        self._let_go()

    def note(self, pod: Pod) -> None:
        """A write that makes the pod fail is about to be sent, in a slot of the ledger."""
        now = self._clock.monotonic()
        self._counted[pod.metadata.uid] = now
        # By then no window looks back at it, though pods tell of whole seconds only.
        oldest = now - self._ledger.window - _WHOLE_SECOND
        while (first := next(iter(self._counted))) and self._counted[first] < oldest:
            del self._counted[first]

    def disown(self, pod: Pod) -> None:
        """The write did not happen: if the pod fails, another process spent a slot for it."""
        self._counted.pop(pod.metadata.uid, None)

    def _let_go(self) -> None:
        self._line.clear()
        self._held.clear()
        self._told.clear()

    def _noted(self) -> dict[str, float]:
        """What pods tell of when they were made to fail, by whole seconds: at the latest then."""
        budget = self._scene.settings.policy.budget
        if budget is None:
            return {}
        pods = self._within(budget.window.total_seconds())
        return dict(sorted(pods, key=operator.itemgetter(1)))

    def _within(self, seconds: float) -> Iterable[tuple[str, float]]:
        now, wall = self._clock.monotonic(), self._clock.now()
        for pod in self._scene.pods:
            held = structs.find(pod.status.conditions, zombie.CONDITION)
            if held is None or held.reason != zombie.REASON or not held.last_transition_time:
                continue
            age = (wall - times.parse(held.last_transition_time)).total_seconds() - _WHOLE_SECOND
            if age < seconds:
                yield pod.metadata.uid, now - max(0.0, age)

    # -- the nodes

    def holds(self, key: str, node: Node) -> bool:
        """Whether so many nodes are unreachable that this one has to wait.

        A slot of the budget would get old meanwhile: it is given back, so the
        line is to be served.
        """
        if not self._scene.is_held:
            self._held.pop(key, None)
            return False
        self.forget(key)
        self._held[key] = None
        self._tell(NODES, node, self._scene.why_held)
        return True

    def released(self) -> list[str]:
        """Who is to be looked at because the nodes hold nobody any more."""
        if not self._held or self._scene.is_held:
            return []
        released = list(self._held)
        self._held.clear()
        self._over(NODES)
        return released

    # -- the budget

    @property
    def is_awaited(self) -> bool:
        """Whether anybody stands in the line."""
        return bool(self._line)

    def take(self, key: str, node: Node) -> Ledger | None:
        """Where to spend a slot of the budget; if there is none, the pod stands in the line."""
        if key in self._slots:
            return self._slots.pop(key)
        if not self._line and self._ledger.take(self._clock.monotonic()):
            return self._ledger
        self._line.add(key)
        budget = self._scene.settings.policy.budget
        assert budget is not None
        window = durations.show(budget.window)
        self._tell(BUDGET, node, f"the budget of {budget.max_pods} pods in {window} is used up")
        return None

    def forget(self, key: str) -> bool:
        """It needs no slot any more; whether it had one, which is now for others."""
        self._line.discard(key)
        self._held.pop(key, None)
        slot = self._slots.pop(key, None)
        if slot is not None:
            slot.give_back()
        return slot is not None

    def serve(self, add: Callable[[str], object]) -> float | None:
        """Let as many go as there are slots; how long until the next, if that is known."""
        now = self._clock.monotonic()
        while self._line and self._ledger.take(now):
            key = self._line.next()
            self._slots[key] = self._ledger
            add(key)
        if not self._line:
            self._over(BUDGET)
            return None
        return self._ledger.wait(now)

    def _tell(self, cause: str, node: Node, why: str) -> None:
        place = (cause, node.metadata.name)
        if place not in self._told:
            self._told[place] = None
            self._teller.held(node, why)

    def _over(self, cause: str) -> None:
        for place in [each for each in self._told if each[0] == cause]:
            del self._told[place]
