# SPDX-License-Identifier: Apache-2.0
"""Pods and nodes that wait because of the budget or because too many nodes are unreachable.

Pods that wait for the budget stand in a queue in which namespaces take turns. Each free slot
releases one pod: to check all of 10,000 pods for each slot would take 100 million checks.
When few enough nodes are unreachable again, all keys that waited for this are released at once.
Each cause has one event per node until the cause is over.
"""

import operator
from collections.abc import Callable, Iterable

from refloat.api import durations, structs, times
from refloat.api.core import Node, Pod
from refloat.base.clock import Clock
from refloat.controllers.failure_recovery.budget_ledger import BudgetLedger, NamespaceQueue
from refloat.controllers.failure_recovery.events import RecoveryEvents
from refloat.controllers.failure_recovery.metrics import FailureRecoveryMetrics
from refloat.controllers.failure_recovery.recovery_state import RecoveryState
from refloat.policy.recovery import zombie

# The precision of the times in conditions.
_WHOLE_SECOND = 1.0

BUDGET, NODES = "Budget", "UnreachableNodes"


class RecoveryLimits:
    def __init__(
        self,
        state: RecoveryState,
        events: RecoveryEvents,
        clock: Clock,
        metrics: FailureRecoveryMetrics,
    ) -> None:
        self._state = state
        self._events = events
        self._clock = clock
        self._ledger = BudgetLedger(None)
        self._line = NamespaceQueue()
        # By the uid of a pod, when Refloat marked the pod Failed: pods that the ledger counts, and
        # pods whose write is under way. The oldest come first.
        self._counted: dict[str, float] = {}
        self._slots: dict[str, BudgetLedger] = {}  # key of a pod -> where it has a slot
        self._held: dict[str, None] = {}  # keys of pods, and names, that the nodes hold
        self._reported: dict[tuple[str, str], None] = {}  # cause and node
        metrics.read_held(BUDGET, lambda: len(self._line))
        metrics.read_held(NODES, lambda: len(self._held))

    def begin(self) -> None:
        """Start: the pods show which slots other processes have spent."""
        self._counted = self._noted()
        self._ledger = BudgetLedger(self._state.settings.policy.budget, self._counted.values())
        self._slots.clear()
        self._let_go()

    def resume(self) -> None:
        """Settings changed, or another process was leader: release all that wait.

        Spent slots still count, also those of other processes and of writes under way.
        """
        for slot in self._slots.values():
            slot.give_back()
        self._slots.clear()
        failures = self._noted()
        self._ledger.add(at for uid, at in failures.items() if uid not in self._counted)
        budget = self._state.settings.policy.budget
        self._ledger.change(budget, self._clock.monotonic(), failures.values())
        self._counted = failures | self._counted
        self._let_go()

    def note(self, pod: Pod) -> None:
        """Note a write that marks the pod Failed; the caller has a slot of the ledger."""
        now = self._clock.monotonic()
        self._counted[pod.metadata.uid] = now
        # Older entries are outside of every window. Pods show whole seconds only.
        oldest = now - self._ledger.window - _WHOLE_SECOND
        while (first := next(iter(self._counted))) and self._counted[first] < oldest:
            del self._counted[first]

    def disown(self, pod: Pod) -> None:
        """The write did not happen: if the pod is Failed, another process spent the slot."""
        self._counted.pop(pod.metadata.uid, None)

    def _let_go(self) -> None:
        self._line.clear()
        self._held.clear()
        self._reported.clear()

    def _noted(self) -> dict[str, float]:
        """When pods were marked Failed at the latest: their conditions have whole seconds."""
        budget = self._state.settings.policy.budget
        if budget is None:
            return {}
        pods = self._within(budget.window.total_seconds())
        return dict(sorted(pods, key=operator.itemgetter(1)))

    def _within(self, seconds: float) -> Iterable[tuple[str, float]]:
        now, wall = self._clock.monotonic(), self._clock.now()
        for pod in self._state.pods:
            condition = structs.find(pod.status.conditions, zombie.CONDITION)
            if (
                condition is None
                or condition.reason != zombie.REASON
                or not condition.last_transition_time
            ):
                continue
            age = (
                wall - times.parse(condition.last_transition_time)
            ).total_seconds() - _WHOLE_SECOND
            if age < seconds:
                yield pod.metadata.uid, now - max(0.0, age)

    # -- the nodes

    def holds(self, key: str, node: Node) -> bool:
        """Whether so many nodes are unreachable that this key has to wait.

        A key that waits gives back its slot of the budget, so the caller must `serve` the queue.
        """
        if not self._state.is_held:
            self._held.pop(key, None)
            return False
        self.forget(key)
        self._held[key] = None
        self._send(NODES, node, self._state.why_held)
        return True

    def released(self) -> list[str]:
        """The keys that waited for nodes, if no key has to wait any more."""
        if not self._held or self._state.is_held:
            return []
        released = list(self._held)
        self._held.clear()
        self._over(NODES)
        return released

    # -- the budget

    @property
    def is_awaited(self) -> bool:
        """Whether a pod waits for the budget."""
        return bool(self._line)

    def take(self, key: str, node: Node) -> BudgetLedger | None:
        """The ledger in which the pod has a slot; None puts the pod into the queue."""
        if key in self._slots:
            return self._slots.pop(key)
        if not self._line and self._ledger.take(self._clock.monotonic()):
            return self._ledger
        self._line.add(key)
        budget = self._state.settings.policy.budget
        assert budget is not None
        window = durations.show(budget.window)
        self._send(BUDGET, node, f"the budget of {budget.max_pods} pods in {window} is used up")
        return None

    def forget(self, key: str) -> bool:
        """Give up the slot of a pod; whether the pod had one, which is free now."""
        self._line.discard(key)
        self._held.pop(key, None)
        slot = self._slots.pop(key, None)
        if slot is not None:
            slot.give_back()
        return slot is not None

    def serve(self, add: Callable[[str], object]) -> float | None:
        """Release as many pods as slots are free; seconds until the next slot, if known."""
        now = self._clock.monotonic()
        while self._line and self._ledger.take(now):
            key = self._line.next()
            self._slots[key] = self._ledger
            add(key)
        if not self._line:
            self._over(BUDGET)
            return None
        return self._ledger.wait(now)

    def _send(self, cause: str, node: Node, why: str) -> None:
        place = (cause, node.metadata.name)
        if place not in self._reported:
            self._reported[place] = None
            self._events.held(node, why)

    def _over(self, cause: str) -> None:
        for place in [each for each in self._reported if each[0] == cause]:
            del self._reported[place]
