# SPDX-License-Identifier: Apache-2.0
"""Keeps the status of disruption budgets, and takes back marks of disruptions that never came.

Two queues: one of budgets, one of pods (behaviour C5). Which pods a budget has
is kept up to date pod by pod; all pods are looked at only when a budget's
selector is new. What is counted is decided in `policy.budgets`.
"""

import contextlib
import logging
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
from refloat.policy import budgets, disruption
from refloat.policy.budgets import KUBERNETES, Settings, Tally, Uncountable
from refloat.runtime import index, statuses
from refloat.runtime.cache import Cache, key_of
from refloat.runtime.controller import Controller, ControllerSettings, Instruments
from refloat.runtime.errors import Retry
from refloat.runtime.event_series import Reference
from refloat.runtime.informer import Informer
from refloat.runtime.queue import Backoff
from refloat.runtime.reconcile import DONE, Result
from refloat.runtime.recorder import Sink

log = logging.getLogger(__name__)

BUDGET_INDEXES = (index.NAMESPACE,)

# Kubernetes' events of budgets have this name of their teller.
COMPONENT = "controllermanager"

_SETTINGS = ControllerSettings(workers=1, backoff=Backoff(base=0.005, cap=1000.0))


class DisruptionController:
    """Both reconcilers; `controllers` are to be run."""

    def __init__(
        self,
        client: Client,
        pods: Informer[Pod],
        found: Informer[PodDisruptionBudget],
        *,
        clock: Clock,
        sink: Sink,
        instruments: Instruments,
        settings: Settings = KUBERNETES,
    ) -> None:
        self._pods = pods.cache
        self._found = found.cache
        self._members: dict[str, Members] = {}
        counting = Budgets(
            client,
            pods.cache,
            found.cache,
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
            StaleMarks(client, pods.cache, clock=clock, settings=settings),
            clock=clock,
            instruments=instruments,
            settings=_SETTINGS,
        )
        self.controllers = [self._counting, self._marks]
        found.add_handler(self._saw_budget)
        pods.add_handler(self._saw_pod)

    def _saw_budget(self, old: PodDisruptionBudget | None, new: PodDisruptionBudget | None) -> None:
        if new is None:
            assert old is not None
            self._members.pop(key_of(old), None)
            return
        key = key_of(new)
        if old is None or old.spec.selector != new.spec.selector:
            self._members[key] = members = Members(new.spec.selector)
            for pod in self._pods:
                if pod.metadata.namespace == new.metadata.namespace:
                    members.note(pod)
        self._counting.queue.add(key)

    def _saw_pod(self, old: Pod | None, new: Pod | None) -> None:
        pod = new if new is not None else old
        assert pod is not None
        if new is not None and budgets.marked_since(new) is not None:
            self._marks.queue.add(key_of(new))
        if old is not None and new is not None and _counted(old) == _counted(new):
            return
        for budget in self._found.by(index.NAMESPACE, pod.metadata.namespace):
            members = self._members[key_of(budget)]
            was = members.forget(pod)
            if (new is not None and members.note(new)) or was:
                self._counting.queue.add(key_of(budget))


class Members:
    """The keys of the pods that a budget selects, in the order in which they came."""

    def __init__(self, wanted: LabelSelector | None) -> None:
        plain = None if wanted is None else msgspec.to_builtins(wanted)
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
    """What a budget sees of a pod."""
    meta = pod.metadata
    ready = structs.is_true(pod.status.conditions, "Ready")
    return (meta.labels, meta.owner_references, pod.is_terminating, ready)


class Budgets:
    """A reconciler of budgets' keys."""

    def __init__(
        self,
        client: Client,
        pods: Cache[Pod],
        found: Cache[PodDisruptionBudget],
        members: dict[str, Members],
        *,
        clock: Clock,
        sink: Sink,
        settings: Settings,
    ) -> None:
        self._settings = settings
        self._client = client
        self._pods = pods
        self._found = found
        self._members = members
        self._clock = clock
        self._sink = sink

    async def reconcile(self, key: str) -> Result:
        budget = self._found.get(key)
        if budget is None:
            return DONE
        now, teller = self._clock.now(), Teller(self._sink, budget)
        pods = [pod for each in self._members[key].keys if (pod := self._pods.get(each))]
        if not pods:
            teller.no_pods()
        try:
            counted = budgets.tally(budget, pods, now=now, settings=self._settings)
        except Uncountable as error:
            teller.uncountable(error)
            await self._write(budget, _failed(budget, str(error), now))
            raise Retry(str(error)) from error
        teller.tell(counted)
        await self._write(budget, _status(budget, counted, now))
        if counted.recheck_at is None:
            return DONE
        return Result(requeue_after=max(0.0, (counted.recheck_at - now).total_seconds()))

    async def _write(self, budget: PodDisruptionBudget, status: Object) -> None:
        """Only on the version that was counted: an eviction may have spent meanwhile."""
        if not status:
            return
        with contextlib.suppress(errors.NotFound):
            kind = kinds.POD_DISRUPTION_BUDGETS
            await statuses.patch(self._client, kind, budget, status, unchanged=True)
            meta = budget.metadata
            log.debug("%s: budget %s/%s: wrote %s", COMPONENT, meta.namespace, meta.name, status)


def _status(budget: PodDisruptionBudget, counted: Tally, now: datetime) -> Object:
    """What of the status changes; empty if nothing does."""
    held = budget.status
    changes: Object = {}
    numbers = {
        "currentHealthy": (held.current_healthy, counted.healthy),
        "desiredHealthy": (held.desired_healthy, counted.desired),
        "expectedPods": (held.expected_pods, counted.expected),
        "disruptionsAllowed": (held.disruptions_allowed, counted.allowed),
        "observedGeneration": (held.observed_generation, budget.metadata.generation),
    }
    noted = dict(held.disrupted_pods or {})
    reason = budgets.SUFFICIENT if counted.allowed else budgets.INSUFFICIENT
    condition = _condition(budget, reason, "", now, generation=budget.metadata.generation)
    if condition or noted != counted.disrupted or any(a != b for a, b in numbers.values()):
        changes = {name: new for name, (_, new) in numbers.items()}
        if noted != counted.disrupted:
            gone = {name: None for name in noted if name not in counted.disrupted}
            changes["disruptedPods"] = {**counted.disrupted, **gone}
    return {**changes, **condition}


def _failed(budget: PodDisruptionBudget, why: str, now: datetime) -> Object:
    """Nothing may go while nobody knows how many there are.

    The condition is of the generation that was counted last, if there was one.
    """
    generation = budget.status.observed_generation
    condition = _condition(budget, budgets.SYNC_FAILED, why, now, generation=generation)
    if not condition and not budget.status.disruptions_allowed:
        return {}
    return {"disruptionsAllowed": 0, **condition}


def _condition(
    budget: PodDisruptionBudget, reason: str, message: str, now: datetime, *, generation: int
) -> Object:
    status = "True" if reason == budgets.SUFFICIENT else "False"
    held = structs.find(budget.status.conditions, budgets.ALLOWED)
    if held is not None and (held.status, held.reason, held.message, held.observed_generation) == (
        status,
        reason,
        message,
        generation,
    ):
        return {}
    made: Object = {
        "type": budgets.ALLOWED,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": generation or None,
    }
    if held is None or held.status != status:
        made["lastTransitionTime"] = times.format_time(now)
    return {"conditions": [made]}


class Teller:
    """Tells of one budget, word for word as Kubernetes does."""

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

    def tell(self, counted: Tally) -> None:
        if counted.unmanaged:
            self._unmanaged()
        namespace = self._budget.metadata.namespace
        for pod in counted.not_deleted:
            # The namespace stands there twice in Kubernetes too (behaviour C5.2).
            note = f"Pod was expected by PDB {namespace}/{namespace} to be deleted but it wasn't"
            about = Reference.of(kinds.PODS, pod)
            self._sink.event(about, "Warning", "NotDeleted", "Count", note)

    def _unmanaged(self) -> None:
        text = budgets.selector_text(self._budget.spec.selector)
        note = (
            f"Pods selected by this PodDisruptionBudget (selector: {text}) were found to be "
            "unmanaged. As a result, the status of the PDB cannot be calculated correctly, which "
            "may result in undefined behavior. To account for these pods please set "
            '".spec.minAvailable" field of the PDB to an integer value.'
        )
        self._sink.event(self._about, "Warning", "UnmanagedPods", "Count", note)


class StaleMarks:
    """A reconciler of pods' keys: a disruption that did not come in time will not (C5.1)."""

    def __init__(
        self, client: Client, pods: Cache[Pod], *, clock: Clock, settings: Settings
    ) -> None:
        self._patience = settings.patience
        self._client = client
        self._pods = pods
        self._clock = clock

    async def reconcile(self, key: str) -> Result:
        pod, now = self._pods.get(key), self._clock.now()
        if pod is None or (since := budgets.marked_since(pod)) is None:
            return DONE
        if (left := since + self._patience - now) > timedelta(0):
            return Result(requeue_after=left.total_seconds())
        condition = {
            "type": disruption.TARGET,
            "status": "False",
            "reason": "",
            "message": "",
            "observedGeneration": pod.metadata.generation,
            "lastTransitionTime": times.format_time(now),
        }
        with contextlib.suppress(errors.NotFound):
            # On the version that was seen: somebody may be deleting it just now.
            status = {"conditions": [condition]}
            await statuses.patch(self._client, kinds.PODS, pod, status, unchanged=True)
            log.debug("%s: pod %s is not disrupted any more", COMPONENT, key)
        return DONE
