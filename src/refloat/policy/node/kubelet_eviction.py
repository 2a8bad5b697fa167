# SPDX-License-Identifier: Apache-2.0
"""The conditions of a node that is low on memory, disk or process ids, and its evictions (D6).

Pure functions: the agent measures, keeps the state between two checks, and ends pods
(`agent/eviction.py`). Messages are a kubelet's, including trailing spaces.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from refloat.api import quantity
from refloat.api.core import Container, Pod
from refloat.api.quantity import Quantity
from refloat.policy.node import eviction_thresholds as thresholds
from refloat.policy.node.eviction_thresholds import DISK, MEMORY, PIDS, EvictionSettings, Threshold
from refloat.policy.scheduling import critical_pods, demand
from refloat.policy.scheduling.critical_pods import IsCritical

REASON = "Evicted"

# The grace of a pod that a hard threshold or its own limit evicts (D6.2).
IMMEDIATE_SECONDS = 1


@dataclass(frozen=True, slots=True)
class Level:
    """How much of a resource is available, and its capacity."""

    available: int
    capacity: int


@dataclass(frozen=True, slots=True)
class VolumeUsage:
    """An emptyDir: bytes in it, and its `sizeLimit` if it has one."""

    used: int
    size_limit: str = ""


@dataclass(frozen=True, slots=True)
class ContainerUsage:
    """Bytes of memory, and of files and logs."""

    memory: int = 0
    storage: int = 0


@dataclass(frozen=True, slots=True)
class PodUsage:
    """What a pod uses of its node."""

    memory: int = 0
    storage: int = 0
    """Of its containers and its emptyDir volumes together."""

    pids: int = 0
    containers: Mapping[str, ContainerUsage] = field(default_factory=dict)
    volumes: Mapping[str, VolumeUsage] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Usage:
    """One measurement of a node; signals that cannot be measured are missing."""

    node: Mapping[str, Level]
    pods: Mapping[str, PodUsage]
    """By uid; a pod without measurement is missing, and is evicted first."""


@dataclass(frozen=True, slots=True)
class EvictionState:
    """What a node remembers from one check to the next."""

    first_seen: Mapping[Threshold, datetime] = field(default_factory=dict)
    met: tuple[Threshold, ...] = ()
    """Thresholds that call for an eviction: their grace is over."""

    last_seen: Mapping[str, datetime] = field(default_factory=dict)
    """When each condition was last observed."""

    conditions: tuple[str, ...] = ()
    """The current conditions, in a fixed order."""


def observe(
    state: EvictionState,
    limits: Sequence[Threshold],
    node: Mapping[str, Level],
    *,
    now: datetime,
    transition_seconds: float,
) -> EvictionState:
    """The state after this measurement."""
    low = [
        each
        for each in limits
        if (level := node.get(each.signal)) is not None
        # A threshold that was met stays met until the minimum is reclaimed.
        and each.is_met(level.available, level.capacity, until_reclaimed=each in state.met)
    ]
    first_seen = {each: state.first_seen.get(each, now) for each in low}
    due = tuple(each for each in low if _seconds(now, first_seen[each]) >= each.grace_seconds)
    last_seen = {
        **state.last_seen,
        **dict.fromkeys((thresholds.CONDITIONS[each.signal] for each in low), now),
    }
    conditions = tuple(
        name
        for name in thresholds.CONDITIONS.values()
        if name in last_seen and _seconds(now, last_seen[name]) < transition_seconds
    )
    return EvictionState(first_seen, due, last_seen, conditions)


def _seconds(now: datetime, then: datetime) -> float:
    return (now - then).total_seconds()


@dataclass(frozen=True, slots=True)
class Eviction:
    """A pod to evict, with message and grace."""

    pod: Pod
    message: str
    grace_seconds: int = IMMEDIATE_SECONDS
    by_pressure: bool = False
    """Whether the node was low. Otherwise the pod exceeded its limit, which is no disruption."""


def over_limits(
    pods: Iterable[Pod],
    usage: Mapping[str, PodUsage],
    is_critical: IsCritical = critical_pods.has_critical_priority,
) -> list[Eviction]:
    """Evictions of all pods that use more disk than their limits."""
    evictions = []
    for pod in pods:
        used = usage.get(pod.metadata.uid)
        if used is None or is_critical(pod):
            continue
        text = _excess(pod, used)
        if text:
            evictions.append(Eviction(pod, text))
    return evictions


def _excess(pod: Pod, used: PodUsage) -> str:
    """The first limit that a pod exceeds, as a message; empty if none."""
    for name, volume in used.volumes.items():
        size_limit = quantity.value(volume.size_limit) if volume.size_limit else 0
        if 0 < size_limit < volume.used:
            size = quantity.canonical(volume.size_limit)
            return f'Usage of EmptyDir volume "{name}" exceeds the limit "{size}". '
    limit = storage_limit(pod)
    if limit is not None and used.storage > limit.value:
        return f"Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "
    for each in pod.spec.containers or ():
        text, usage = _limit(each), used.containers.get(each.name)
        if text and usage is not None and 0 < quantity.value(text) < usage.storage:
            size = quantity.canonical(text)
            return f'Container {each.name} exceeded its local ephemeral storage limit "{size}". '
    return ""


def storage_limit(pod: Pod) -> Quantity | None:
    """The limit of all containers together, computed like a pod's requests; None without limits."""
    spec = pod.spec
    sidecars = [each for each in spec.init_containers or () if each.restart_policy == "Always"]
    texts = [_limit(each) for each in (*(spec.containers or ()), *sidecars)]
    total = "0"
    for text in filter(None, texts):
        total = quantity.add(total, text)
    # An init container runs alone, but beside the sidecars before it.
    beside = "0"
    for each in spec.init_containers or ():
        alone = quantity.add(beside, _limit(each) or "0")
        if each.restart_policy == "Always":
            beside = alone
        total = alone if quantity.compare(alone, total) > 0 else total
    has_limit = any(texts) or quantity.value(total) > 0
    return quantity.parse(total) if has_limit else None


def _limit(container: Container) -> str:
    return (container.resources.limits or {}).get(demand.STORAGE, "")


def by_pressure(
    state: EvictionState,
    settings: EvictionSettings,
    pods: Sequence[Pod],
    measured: Usage,
    is_critical: IsCritical = critical_pods.has_critical_priority,
) -> Eviction | None:
    """The one pod to evict if the node is low (D6.2)."""
    if not state.met:
        return None
    limit = state.met[0]
    ranked = rank(limit.signal, pods, measured.pods)
    victim = next((each for each in ranked if not is_critical(each)), None)
    if victim is None:
        return None
    grace, own = IMMEDIATE_SECONDS, victim.spec.termination_grace_period_seconds
    if not limit.is_hard:
        most = settings.max_pod_grace_seconds
        grace = most if own is None else min(most, own)
    return Eviction(victim, message(victim, limit, measured), grace, by_pressure=True)


def rank(signal: str, pods: Iterable[Pod], usage: Mapping[str, PodUsage]) -> list[Pod]:
    """The pods in the order of eviction.

    Unknown ones first, then pods above their requests, then the rest; each group by priority, then
    by excess over the requests. Pods request no process ids, so for these priority comes first.
    """
    return sorted(pods, key=lambda pod: _rank(signal, pod, usage.get(pod.metadata.uid)))


def _rank(signal: str, pod: Pod, used: PodUsage | None) -> tuple[int, ...]:
    priority = demand.priority(pod)
    if signal == PIDS:
        return (priority, 0, 0) if used is None else (priority, 1, -used.pids)
    if used is None:
        return (0, priority, 0)
    amount = used.memory if signal == MEMORY else used.storage
    excess = amount - dict(demand.needs(pod)).get(thresholds.RESOURCES[signal], 0)
    return (1 if excess > 0 else 2, priority, -excess)


def message(pod: Pod, limit: Threshold, measured: Usage) -> str:
    """Why this pod is evicted (behaviour D6.1)."""
    resource, level = thresholds.RESOURCES[limit.signal], measured.node[limit.signal]
    least = limit.amount.of(level.capacity)
    is_bytes = limit.signal in (MEMORY, DISK)
    available = Quantity(level.available, 0, "BinarySI" if is_bytes else "DecimalSI")
    text = (
        f"The node was low on resource: {resource}. "
        f"Threshold quantity: {least}, available: {available}. "
    )
    used = measured.pods.get(pod.metadata.uid)
    if used is None or limit.signal == PIDS:
        return text
    requests = (pod.spec.resources.requests or {}) if pod.spec.resources is not None else {}
    if limit.signal == MEMORY and demand.MEMORY in requests:
        text += (
            f"Pod {pod.metadata.name} was using {_bytes(used.memory)}, "
            f"request is {quantity.canonical(requests[demand.MEMORY])}, "
            "has larger consumption of memory. "
        )
    for each in (*(pod.spec.containers or ()), *(pod.spec.init_containers or ())):
        usage = used.containers.get(each.name)
        if usage is None:
            continue
        amount = usage.memory if limit.signal == MEMORY else usage.storage
        request = (each.resources.requests or {}).get(resource, "0")
        if amount > quantity.value(request):
            text += (
                f"Container {each.name} was using {_bytes(amount)}, "
                f"request is {quantity.canonical(request)}, has larger consumption of {resource}. "
            )
    return text


def _bytes(amount: int) -> str:
    return str(Quantity(amount, 0, "BinarySI"))
