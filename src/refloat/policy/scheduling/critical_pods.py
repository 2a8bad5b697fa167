# SPDX-License-Identifier: Apache-2.0
"""Critical pods, and which pods a node ends to make room for them (behaviour D6).

A node that lacks resources for such a pod ends as few others as possible, those with weaker QoS
first. The scheduler's preemption is different (`preemption`): it chooses among nodes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from refloat.api import qos
from refloat.api.core import Pod, Resources
from refloat.api.meta import Object
from refloat.policy.scheduling import demand
from refloat.policy.scheduling.demand import CPU, MEMORY, PODS

# The lowest priority of the system's own classes (behaviour C7).
SYSTEM_CRITICAL = 2_000_000_000

MIRROR = "kubernetes.io/config.mirror"

IsCritical: TypeAlias = Callable[[Pod], bool]
"""Whether a pod is never evicted, and others make room for it."""

Missing: TypeAlias = Mapping[str, int]
"""How much of which resource is missing, in the units of `demand.Needs`."""


@dataclass(frozen=True, slots=True)
class NotEnoughPods:
    """There are not enough pods to end; `missing` would still be missing."""

    missing: Missing

    def __str__(self) -> str:
        text = "".join(f"(res: {name}, q: {amount}), " for name, amount in self.missing.items())
        return f"no set of running pods found to reclaim resources: [{text}]"


def has_critical_priority(pod: Pod) -> bool:
    """The `IsCritical` of pods of the API: by priority alone.

    Static pods are critical, too, and only their node knows which those are. The annotations
    `config.source` and `config.mirror` do not show it: the author of a pod can write both. A
    kubelet sets `config.source` to `api` in all pods that come from the API server.
    """
    return demand.priority(pod) >= SYSTEM_CRITICAL


def is_mirror(pod: Pod) -> bool:
    """Whether the pod only shows a static pod, which its node runs by itself.

    A kubelet writes the annotation and makes its Node the owner. Any user who may create pods can
    write both, too, so this must never give a pod a right: use this check only to leave the pod out
    of account.
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
) -> list[Pod] | NotEnoughPods:
    """The pods to end: none with a guarantee if others suffice."""
    classes: dict[str, list[_Tenant]] = {
        name: [] for name in (qos.BEST_EFFORT, qos.BURSTABLE, qos.GUARANTEED)
    }
    for pod in pods:
        if may_preempt(preemptor, pod, is_critical):
            classes[qos_class(pod)].append(_Tenant(pod, {**dict(demand.needs(pod)), PODS: 1}))
    best_effort, burstable, guaranteed = classes.values()
    if shortage := _without(missing, [*best_effort, *burstable, *guaranteed]):
        return NotEnoughPods(shortage)
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


def _without(missing: Missing, leaving: Sequence[_Tenant]) -> dict[str, int]:
    """What is still missing when these pods have left."""
    rest = {
        name: amount - sum(each.gives.get(name, 0) for each in leaving)
        for name, amount in missing.items()
    }
    return {name: amount for name, amount in rest.items() if amount > 0}


def _nearest(tenants: Sequence[_Tenant], missing: Missing) -> list[_Tenant]:
    """Tenants that together give enough: each time the one that leaves the least missing.

    What a tenant leaves missing is the missing share of each resource, squared and added. Among
    equals the smaller one, then the last, as in a kubelet, which also moves the last of all to the
    place of the chosen one.
    """
    candidates, picks = list(tenants), []
    while missing and candidates:
        ranks = []
        for each in candidates:
            left = ((max(0, n - each.gives.get(name, 0)) / n) for name, n in missing.items())
            ranks.append((sum(share**2 for share in left), each.size()))
        place = len(ranks) - 1 - ranks[::-1].index(min(ranks))
        picks.append(candidates[place])
        candidates[place] = candidates[-1]
        del candidates[-1]
        missing = _without(missing, picks[-1:])
    return picks


def qos_class(pod: Pod) -> str:
    """The QoS class of a pod."""
    spec = pod.spec
    every = (*(spec.containers or ()), *(spec.init_containers or ()))
    body: Object = {"containers": [{"resources": _amounts(each.resources)} for each in every]}
    if spec.resources is not None:
        body["resources"] = _amounts(spec.resources)
    return qos.qos_class({"spec": body})


def _amounts(resources: Resources) -> Object:
    return {"requests": resources.requests or {}, "limits": resources.limits or {}}
