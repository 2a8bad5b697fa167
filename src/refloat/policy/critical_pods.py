# SPDX-License-Identifier: Apache-2.0
"""Pods that a node cannot do without, and who makes room for them (behaviour D6).

A node that lacks resources for such a pod ends others: as few as can be, and
rather those that were promised less. The scheduler's preemption is another
matter (`preemption`): it chooses among nodes and asks before it ends anybody.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from refloat.api import qos
from refloat.api.core import Container, Pod, Resources
from refloat.api.meta import Object
from refloat.policy import demand
from refloat.policy.demand import CPU, MEMORY, PODS

# From here on priorities are the system's own (behaviour C7).
SYSTEM_CRITICAL = 2_000_000_000

MIRROR = "kubernetes.io/config.mirror"

IsCritical: TypeAlias = Callable[[Pod], bool]
"""Whether a pod is never evicted, and others make room for it."""

Missing: TypeAlias = Mapping[str, int]
"""How much of which resource is missing, in the units of `demand.Needs`."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """There are not enough pods to end; what would still be missing."""

    missing: Missing

    def __str__(self) -> str:
        listed = "".join(f"(res: {name}, q: {amount}), " for name, amount in self.missing.items())
        return f"no set of running pods found to reclaim resources: [{listed}]"


def has_critical_priority(pod: Pod) -> bool:
    """The `IsCritical` of pods of the API: by priority alone.

    Static pods are critical too, and only their node knows which those are. The
    annotations `config.source` and `config.mirror` do not say it: the author of a
    pod can write both. A kubelet sets `config.source` to `api` in all pods that come
    from the API server.
    """
    return demand.priority(pod) >= SYSTEM_CRITICAL


def is_mirror(pod: Pod) -> bool:
    """Whether it only shows a static pod, which its node runs by itself.

    A kubelet writes the annotation and makes its Node the owner. Any user who may
    create pods can write both too, so this must never give a pod a right: use it
    only to leave out of account the pod that claims it.
    """
    if MIRROR not in (pod.metadata.annotations or {}):
        return False
    owner = pod.metadata.controller
    return owner is not None and (owner.kind, owner.name) == ("Node", pod.spec.node_name)


def may_preempt(
    preemptor: Pod, other: Pod, is_critical: IsCritical = has_critical_priority
) -> bool:
    if is_critical(preemptor) and not is_critical(other):
        return True
    return demand.priority(preemptor) > demand.priority(other)


def victims(
    preemptor: Pod,
    pods: Sequence[Pod],
    missing: Missing,
    is_critical: IsCritical = has_critical_priority,
) -> list[Pod] | Unreachable:
    """Whom to end: none that was guaranteed anything if others do."""
    classes: dict[str, list[_Tenant]] = {
        name: [] for name in (qos.BEST_EFFORT, qos.BURSTABLE, qos.GUARANTEED)
    }
    for pod in pods:
        if may_preempt(preemptor, pod, is_critical):
            classes[qos_class(pod)].append(_tenant(pod))
    best_effort, burstable, guaranteed = classes.values()
    if left := _without(missing, [*best_effort, *burstable, *guaranteed]):
        return Unreachable(left)
    # Each class gives only what the lesser ones together cannot.
    third = _nearest(guaranteed, _without(missing, [*best_effort, *burstable]))
    second = _nearest(burstable, _without(missing, [*best_effort, *third]))
    first = _nearest(best_effort, _without(missing, [*second, *third]))
    return [each.pod for each in (*first, *second, *third)]


@dataclass(frozen=True, slots=True)
class _Tenant:
    pod: Pod
    gives: Mapping[str, int]

    def size(self) -> tuple[int, int]:
        return self.gives.get(MEMORY, 0), self.gives.get(CPU, 0)


def _tenant(pod: Pod) -> _Tenant:
    return _Tenant(pod, {**dict(demand.needs(pod)), PODS: 1})


def _without(missing: Missing, leaving: Sequence[_Tenant]) -> dict[str, int]:
    """What is missing still when these have left."""
    left = {
        name: amount - sum(each.gives.get(name, 0) for each in leaving)
        for name, amount in missing.items()
    }
    return {name: amount for name, amount in left.items() if amount > 0}


def _nearest(tenants: Sequence[_Tenant], missing: Missing) -> list[_Tenant]:
    """Those that together give enough: each time the one that leaves least missing.

    Of equals the smaller one, and of those the last, as a kubelet does; it
    also puts the last of all in the place of the one that it took.
    """
    candidates, chosen = list(tenants), []
    while missing and candidates:
        ranks = [(_distance(missing, each), each.size()) for each in candidates]
        place = len(ranks) - 1 - ranks[::-1].index(min(ranks))
        chosen.append(candidates[place])
        candidates[place] = candidates[-1]
        del candidates[-1]
        missing = _without(missing, chosen[-1:])
    return chosen


def _distance(missing: Missing, tenant: _Tenant) -> float:
    """Which share of each would still be missing; far ones weigh more."""
    shares = (max(0, each - tenant.gives.get(name, 0)) / each for name, each in missing.items())
    return sum(share**2 for share in shares)


def qos_class(pod: Pod) -> str:
    """How firmly its resources were promised."""
    spec = pod.spec
    every = (*(spec.containers or ()), *(spec.init_containers or ()))
    told: Object = {"containers": [_resources_of(each) for each in every]}
    if spec.resources is not None:
        told["resources"] = _amounts(spec.resources)
    return qos.qos_class({"spec": told})


def _resources_of(container: Container) -> Object:
    return {"resources": _amounts(container.resources)}


def _amounts(resources: Resources) -> Object:
    return {"requests": resources.requests or {}, "limits": resources.limits or {}}
