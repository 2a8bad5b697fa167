# SPDX-License-Identifier: Apache-2.0
"""Updates the status of disruption budgets, and removes marks of disruptions that never came.

Two queues: budgets and pods (behaviour C5). The controller tracks the pods of each budget pod
by pod, and reads all pods only for a new selector. `policy.scheduling.disruption_budgets`
counts.
"""

import contextlib
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from refloat.api import selectors, structs, times
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.api.policy import PodDisruptionBudget
from refloat.api.structs import LabelSelector
from refloat.base.clock import Clock
from refloat.client import errors, kinds
from refloat.client.contract import Client
from refloat.policy.scheduling import disruption_budgets, disruption_target
from refloat.policy.scheduling.disruption_budgets import (
    KUBERNETES,
    BudgetTally,
    DisruptionBudgetSettings,
    Uncountable,
)
from refloat.runtime import index, status_writes
from refloat.runtime.cache import Cache, key_of
from refloat.runtime.controller import Controller, ControllerSettings, Instruments
from refloat.runtime.controller_env import ControllerEnv
from refloat.runtime.errors import Retry
from refloat.runtime.event_series import Reference
from refloat.runtime.informer import Change, Informer
from refloat.runtime.manager import Worker
from refloat.runtime.queue import Backoff
from refloat.runtime.reconcile import DONE, Result
from refloat.runtime.recorder import Sink

log = logging.getLogger(__name__)

# The source of the events of budgets, as in Kubernetes.
COMPONENT = "controllermanager"

_SETTINGS = ControllerSettings(workers=1, backoff=Backoff(base=0.005, cap=1000.0))


class DisruptionController:
    """Both reconcilers; the caller runs `controllers`."""

    def __init__(
        self,
        client: Client,
        pods: Informer[Pod],
        budgets: Informer[PodDisruptionBudget],
        *,
        clock: Clock,
        sink: Sink,
        instruments: Instruments,
        settings: DisruptionBudgetSettings = KUBERNETES,
    ) -> None:
        self._pods = pods.cache
        self._budgets = budgets.cache
        self._members: dict[str, BudgetMembers] = {}
        counting = BudgetReconciler(
            client,
            pods.cache,
            budgets.cache,
            self._members,
            clock=clock,
            sink=sink,
            settings=settings,
        )
        self._counting: Controller[str] = Controller(
            "disruption", counting, clock=clock, instruments=instruments, settings=_SETTINGS
        )
        self._marks: Controller[str] = Controller(
            "stale_pod_disruption",
            StaleDisruptionTargets(client, pods.cache, clock=clock, settings=settings),
            clock=clock,
            instruments=instruments,
            settings=_SETTINGS,
        )
        self.controllers = [self._counting, self._marks]
        budgets.add_handler(self._budget_changed)
        pods.add_handler(self._pod_changed)

    def _budget_changed(self, change: Change[PodDisruptionBudget]) -> None:
        old, new = change.old, change.new
        key = key_of(change.current)
        if new is None:
            self._members.pop(key, None)
            return
        if old is None or old.spec.selector != new.spec.selector:
            self._members[key] = members = BudgetMembers(new.spec.selector)
            for pod in self._pods:
                if pod.metadata.namespace == new.metadata.namespace:
                    members.note(pod)
        self._counting.queue.add(key)

    def _pod_changed(self, change: Change[Pod]) -> None:
        old, new, pod = change.old, change.new, change.current
        if new is not None and disruption_budgets.marked_since(new) is not None:
            self._marks.queue.add(key_of(new))
        if old is not None and new is not None and _counted(old) == _counted(new):
            return
        for budget in self._budgets.by(index.NAMESPACE, pod.metadata.namespace):
            members = self._members[key_of(budget)]
            was = members.forget(pod)
            if (new is not None and members.note(new)) or was:
                self._counting.queue.add(key_of(budget))


class BudgetMembers:
    """The keys of the pods that a budget selects, in the order in which they came."""

    def __init__(self, selector: LabelSelector | None) -> None:
        plain = None if selector is None else msgspec.to_builtins(selector)
        self._selector = selectors.from_object(plain)
        self.keys: dict[str, None] = {}

    def note(self, pod: Pod) -> bool:
        selected = self._selector.matches(pod.metadata.labels or {})
        if selected:
            self.keys[key_of(pod)] = None
        return selected

    def forget(self, pod: Pod) -> bool:
        key = key_of(pod)
        was = key in self.keys
        self.keys.pop(key, None)
        return was


def _counted(pod: Pod) -> tuple[object, ...]:
    """The part of a pod that a budget counts."""
    meta = pod.metadata
    ready = structs.is_true(pod.status.conditions, "Ready")
    return (meta.labels, meta.owner_references, pod.is_terminating, ready)


class BudgetReconciler:
    """The reconciler of budgets."""

    def __init__(
        self,
        client: Client,
        pods: Cache[Pod],
        budgets: Cache[PodDisruptionBudget],
        members: dict[str, BudgetMembers],
        *,
        clock: Clock,
        sink: Sink,
        settings: DisruptionBudgetSettings,
    ) -> None:
        self._settings = settings
        self._client = client
        self._pods = pods
        self._budgets = budgets
        self._members = members
        self._clock = clock
        self._sink = sink

    async def reconcile(self, key: str) -> Result:
        budget = self._budgets.get(key)
        if budget is None:
            return DONE
        now, events = self._clock.now(), BudgetEvents(self._sink, budget)
        pods = [pod for each in self._members[key].keys if (pod := self._pods.get(each))]
        if not pods:
            events.no_pods()
        try:
            tally = disruption_budgets.tally(budget, pods, now=now, settings=self._settings)
        except Uncountable as error:
            events.uncountable(error)
            await self._write(budget, _failed(budget, str(error), now))
            raise Retry(str(error)) from error
        events.record(tally)
        await self._write(budget, _status(budget, tally, now))
        if tally.recheck_at is None:
            return DONE
        return Result(requeue_after=max(0.0, (tally.recheck_at - now).total_seconds()))

    async def _write(self, budget: PodDisruptionBudget, status: Object) -> None:
        """Write only the version that was counted: an eviction may have changed the budget."""
        if not status:
            return
        with contextlib.suppress(errors.NotFound):
            kind = kinds.POD_DISRUPTION_BUDGETS
            await status_writes.patch(self._client, kind, budget, status, unchanged=True)
            meta = budget.metadata
            log.debug("%s: budget %s/%s: wrote %s", COMPONENT, meta.namespace, meta.name, status)


def _status(budget: PodDisruptionBudget, tally: BudgetTally, now: datetime) -> Object:
    """The changed fields of the status; empty if nothing changed."""
    status = budget.status
    changes: Object = {}
    numbers = {
        "currentHealthy": (status.current_healthy, tally.healthy),
        "desiredHealthy": (status.desired_healthy, tally.desired),
        "expectedPods": (status.expected_pods, tally.expected),
        "disruptionsAllowed": (status.disruptions_allowed, tally.allowed),
        "observedGeneration": (status.observed_generation, budget.metadata.generation),
    }
    disrupted = dict(status.disrupted_pods or {})
    reason = disruption_budgets.SUFFICIENT if tally.allowed else disruption_budgets.INSUFFICIENT
    condition = _condition(budget, reason, "", now, generation=budget.metadata.generation)
    if condition or disrupted != tally.disrupted or any(a != b for a, b in numbers.values()):
        changes = {name: new for name, (_, new) in numbers.items()}
        if disrupted != tally.disrupted:
            removals = {name: None for name in disrupted if name not in tally.disrupted}
            changes["disruptedPods"] = {**tally.disrupted, **removals}
    return {**changes, **condition}


def _failed(budget: PodDisruptionBudget, why: str, now: datetime) -> Object:
    """Allow no disruptions while the number of pods is unknown.

    The condition keeps the generation that was counted last.
    """
    generation = budget.status.observed_generation
    condition = _condition(budget, disruption_budgets.SYNC_FAILED, why, now, generation=generation)
    if not condition and not budget.status.disruptions_allowed:
        return {}
    return {"disruptionsAllowed": 0, **condition}


def _condition(
    budget: PodDisruptionBudget, reason: str, message: str, now: datetime, *, generation: int
) -> Object:
    status = "True" if reason == disruption_budgets.SUFFICIENT else "False"
    current = structs.find(budget.status.conditions, disruption_budgets.ALLOWED)
    if current is not None and (
        current.status,
        current.reason,
        current.message,
        current.observed_generation,
    ) == (
        status,
        reason,
        message,
        generation,
    ):
        return {}
    condition: Object = {
        "type": disruption_budgets.ALLOWED,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": generation or None,
    }
    if current is None or current.status != status:
        condition["lastTransitionTime"] = times.format_time(now)
    return {"conditions": [condition]}


class BudgetEvents:
    """Sends the events of one budget, in the exact words of Kubernetes."""

    def __init__(self, sink: Sink, budget: PodDisruptionBudget) -> None:
        self._sink = sink
        self._budget = budget
        self._about = Reference.of(kinds.POD_DISRUPTION_BUDGETS, budget)

    def no_pods(self) -> None:
        self._sink.event(self._about, "Normal", "NoPods", "Count", "No matching pods found")

    def uncountable(self, error: Exception) -> None:
        note = f"Failed to calculate the number of expected pods: {error}"
        reason = "CalculateExpectedPodCountFailed"
        self._sink.event(self._about, "Warning", reason, "Count", note)

    def record(self, tally: BudgetTally) -> None:
        if tally.unmanaged:
            text = disruption_budgets.selector_text(self._budget.spec.selector)
            note = (
                f"Pods selected by this PodDisruptionBudget (selector: {text}) were found to be "
                "unmanaged. As a result, the status of the PDB cannot be calculated correctly, "
                "which may result in undefined behavior. To account for these pods please set "
                '".spec.minAvailable" field of the PDB to an integer value.'
            )
            self._sink.event(self._about, "Warning", "UnmanagedPods", "Count", note)
        namespace = self._budget.metadata.namespace
        for pod in tally.not_deleted:
            # The namespace stands there twice in Kubernetes too (behaviour C5.2).
            note = f"Pod was expected by PDB {namespace}/{namespace} to be deleted but it wasn't"
            about = Reference.of(kinds.PODS, pod)
            self._sink.event(about, "Warning", "NotDeleted", "Count", note)


class StaleDisruptionTargets:
    """The reconciler of marked pods: a late disruption will not come any more (C5.1)."""

    def __init__(
        self, client: Client, pods: Cache[Pod], *, clock: Clock, settings: DisruptionBudgetSettings
    ) -> None:
        self._patience = settings.patience
        self._client = client
        self._pods = pods
        self._clock = clock

    async def reconcile(self, key: str) -> Result:
        pod, now = self._pods.get(key), self._clock.now()
        if pod is None or (since := disruption_budgets.marked_since(pod)) is None:
            return DONE
        if (wait := since + self._patience - now) > timedelta(0):
            return Result(requeue_after=wait.total_seconds())
        condition = {
            "type": disruption_target.TARGET,
            "status": "False",
            "reason": "",
            "message": "",
            "observedGeneration": pod.metadata.generation,
            "lastTransitionTime": times.format_time(now),
        }
        with contextlib.suppress(errors.NotFound):
            # Only on the version that was seen: a client may be deleting the pod.
            status = {"conditions": [condition]}
            await status_writes.patch(self._client, kinds.PODS, pod, status, unchanged=True)
            log.debug("%s: pod %s is not disrupted any more", COMPONENT, key)
        return DONE


def build(env: ControllerEnv) -> Sequence[Worker]:
    client = env.client("disruption-controller")
    return DisruptionController(
        client,
        env.informer(kinds.PODS),
        env.informer(kinds.POD_DISRUPTION_BUDGETS, index.NAMESPACE),
        clock=env.clock,
        sink=env.recorder(client, COMPONENT),
        instruments=env.instruments,
        settings=env.settings(DisruptionBudgetSettings),
    ).controllers
