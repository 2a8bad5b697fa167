# SPDX-License-Identifier: Apache-2.0
"""`pods/eviction`: a delete that respects the disruption budgets (behaviour C6)."""

from dataclasses import replace

from refloat.api import conditions, errors, kinds, selectors, times
from refloat.api.meta import Object, is_terminating, labels
from refloat.apiserver import deletion, storage_codec
from refloat.apiserver.identity import Call
from refloat.apiserver.registry import Registry, check_preconditions
from refloat.apiserver.routes import Target
from refloat.base import gates
from refloat.base.clock import Clock
from refloat.policy.job import pod_reason
from refloat.store.contract import Entry

PODS = kinds.of("pods")
BUDGETS = kinds.of("poddisruptionbudgets", "policy")

# Conflicts are retried as Kubernetes does (behaviour C6.2).
MAX_TRIES = 20
RETRY_SECONDS = 0.5

# A budget that cannot keep up with its evictions is protected from them.
MAX_DISRUPTED = 2000

BUSY_SECONDS = 10

REASON = "EvictionByEvictionAPI"
MESSAGE = "Eviction API: evicting"

_TARGET = {
    "type": "DisruptionTarget",
    "status": "True",
    "lastProbeTime": None,
    "reason": REASON,
    "message": MESSAGE,
}

REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."


class PodEvictions:
    """Evicts pods, one request at a time."""

    def __init__(self, registry: Registry, clock: Clock, feature_gates: gates.Gates) -> None:
        self._registry = registry
        self._clock = clock
        self._marks = feature_gates.enabled(gates.POD_DISRUPTION_CONDITIONS)
        self._sets_reason = feature_gates.enabled(gates.RETRIABLE_AND_NON_RETRIABLE_FAILURES)

    async def evict(self, call: Call, target: Target, options: deletion.Options) -> None:
        """Mark and delete a pod, or raise 429 with the budget that forbids it."""
        for attempt in range(MAX_TRIES):
            pod = storage_codec.unpack(
                PODS, self._registry.get(PODS, target.namespace, target.name)
            )
            if not needs_no_budget(pod):
                await self._evict_guarded(call, pod, options)
                return
            if options.uid:  # another pod never becomes this one, so do not try again
                pod_uid = deletion.Options(uid=options.uid)
                check_preconditions(PODS, target.name, pod["metadata"], pod_uid)
            # A pending pod may start meanwhile, and then the budgets count.
            pending = pod["status"].get("phase") == "Pending" and not is_terminating(pod)
            pins = pending and options.resource_version is None
            try:
                await self._mark_and_delete(call, pod, _pinned(pod, options) if pins else options)
            except errors.StatusError as error:
                last = options.resource_version is not None or attempt == MAX_TRIES - 1
                if last or not _is_conflict(error):
                    raise
                await self._clock.sleep(RETRY_SECONDS)
            else:
                return

    async def _evict_guarded(self, call: Call, pod: Object, options: deletion.Options) -> None:
        """Evict a running pod, and charge its budget once."""
        prefix = storage_codec.prefix(BUDGETS, pod["metadata"]["namespace"])
        entries = self._registry.store.page(prefix).entries
        every = (storage_codec.unpack(BUDGETS, entry) for entry in entries)
        budgets = [
            each
            for each in every
            if (selector := each["spec"].get("selector")) is not None
            and selectors.from_object(selector).matches(labels(pod))
        ]
        if not budgets:
            await self._mark_and_delete(call, pod, options)
            return
        if len(budgets) > 1:
            message = "This pod has more than one PodDisruptionBudget, "
            message += "which the eviction subresource does not support."
            raise errors.StatusError(500, "", message)
        budget = budgets[0]
        if not may_go_unready(pod, budget):
            await self._charge(call, budget, pod["metadata"]["name"])
            await self._mark_and_delete(call, pod, options)
            return
        try:
            await self._mark_and_delete(call, pod, _pinned(pod, options))
        except errors.StatusError as error:
            # The pod may have become ready meanwhile, and then it counts.
            if _is_conflict(error) and options.resource_version is None:
                raise still_processing(budget) from error
            raise

    async def _charge(self, call: Call, budget: Object, pod: str) -> None:
        """Take one disruption from a budget; try again after a conflict."""
        namespace, name = budget["metadata"]["namespace"], budget["metadata"]["name"]
        stamp = times.format_time(call.now)

        def produce(old: Object) -> Object:
            status = {**old["status"]}
            status["disruptionsAllowed"] -= 1
            status["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod: stamp}
            if not status["disruptionsAllowed"]:
                condition = {
                    "type": "DisruptionAllowed",
                    "status": "False",
                    "observedGeneration": status.get("observedGeneration", 0),
                    "reason": "InsufficientPods",
                    "message": "",
                }
                status["conditions"] = list(conditions.of(old))
                conditions.upsert(status["conditions"], condition, now=stamp)
            return {**old, "status": status, "metadata": {**old["metadata"]}}

        for attempt in range(MAX_TRIES):
            check_budget(budget)
            try:
                await self._registry.modify(
                    call,
                    Target(BUDGETS, namespace, name, "status"),
                    produce,
                    resource_version=budget["metadata"]["resourceVersion"],
                    owners_final=True,  # fields that the server writes have no owner
                )
            except errors.StatusError as error:
                if not _is_conflict(error) or attempt == MAX_TRIES - 1:
                    raise
                await self._clock.sleep(RETRY_SECONDS)
                budget = storage_codec.unpack(BUDGETS, self._registry.get(BUDGETS, namespace, name))
            else:
                return

    async def _mark_and_delete(self, call: Call, pod: Object, options: deletion.Options) -> None:
        metadata = pod["metadata"]
        target = Target(PODS, metadata["namespace"], metadata["name"])
        if self._sets_reason and not options.reason:
            options = replace(options, reason=pod_reason.EVICTION_API)
        if self._marks:
            marked = await self._mark(call, pod, options)
            if options.resource_version is not None:
                options = replace(options, resource_version=str(marked.revision))
        await self._registry.delete(call, target, options)

    async def _mark(self, call: Call, pod: Object, options: deletion.Options) -> Entry:
        metadata = pod["metadata"]
        # Empty preconditions count only for the delete.
        preconditions = replace(
            options, uid=options.uid or None, resource_version=options.resource_version or None
        )

        def produce(old: Object) -> Object:
            check_preconditions(PODS, metadata["name"], old["metadata"], preconditions)
            pod_conditions = list(conditions.of(old))
            conditions.upsert(pod_conditions, _TARGET, now=times.format_time(call.now))
            status = {**old["status"], "conditions": pod_conditions}
            return {**old, "metadata": {**old["metadata"]}, "status": status}

        target = Target(PODS, metadata["namespace"], metadata["name"], "status")
        return await self._registry.modify(call, target, produce, owners_final=True)


def needs_no_budget(pod: Object) -> bool:
    """Whether the pod has ended, is terminating or has not started (behaviour C6.2)."""
    return pod["status"].get("phase") in ("Succeeded", "Failed", "Pending") or is_terminating(pod)


def _pinned(pod: Object, options: deletion.Options) -> deletion.Options:
    return replace(options, resource_version=pod["metadata"]["resourceVersion"])


def _is_conflict(error: errors.StatusError) -> bool:
    return error.code == 409 and error.reason == "Conflict"


def may_go_unready(pod: Object, budget: Object) -> bool:
    """Whether the policy lets this unready pod go without the budget (behaviour C6.4)."""
    if conditions.is_true(conditions.of(pod), "Ready"):
        return False
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget["status"]
    return bool(status["currentHealthy"] >= status["desiredHealthy"] > 0)


def check_budget(budget: Object) -> None:
    status, name = budget["status"], budget["metadata"]["name"]
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        raise still_processing(budget)
    if status["disruptionsAllowed"] < 0:
        raise errors.forbidden(
            "policy", "poddisruptionbudget", name, "pdb disruptions allowed is negative"
        )
    if len(status.get("disruptedPods") or ()) > MAX_DISRUPTED:
        raise errors.forbidden(
            "policy",
            "poddisruptionbudget",
            name,
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        )
    if status["disruptionsAllowed"] == 0:
        raise refused(_why_not(budget), retry_after=0)


def refused(cause: str, *, retry_after: int) -> errors.StatusError:
    causes = [{"reason": "DisruptionBudget", "message": cause}]
    return errors.too_many_requests(REFUSED, retry_after, causes)


def still_processing(budget: Object) -> errors.StatusError:
    name = budget["metadata"]["name"]
    text = f"The disruption budget {name} is still being processed by the server."
    return refused(text, retry_after=BUSY_SECONDS)


def _why_not(budget: Object) -> str:
    """The cause's text, by the first rule that applies (behaviour C6.6)."""
    status = budget["status"]
    subject = f"The disruption budget {budget['metadata']['name']}"
    allowed = conditions.find(conditions.of(budget), "DisruptionAllowed") or {}
    denied = allowed.get("status") == "False" and allowed.get("message")
    if denied and allowed.get("reason") == "SyncFailed":
        failed = "does not allow evicting pods currently because it failed sync"
        return f"{subject} {failed}: {allowed['message']}"
    if status["currentHealthy"] <= status["desiredHealthy"]:
        return (
            f"{subject} needs {status['desiredHealthy']} healthy pods "
            f"and has {status['currentHealthy']} currently"
        )
    if denied:
        why = f"({allowed['reason']}): {allowed['message']}"
        return f"{subject} does not allow evicting pods currently {why}"
    return f"{subject} does not allow evicting pods currently"
