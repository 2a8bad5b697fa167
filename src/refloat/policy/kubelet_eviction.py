# SPDX-License-Identifier: Apache-2.0
"""What a node that is low on memory, disk or process ids says, and whom it evicts (D6).

Pure: it is given what was measured and what was so before. The agent measures,
keeps the state between two looks, and ends pods (`agent/eviction.py`). Messages
are a kubelet's, trailing spaces and all.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from refloat.api import quantity
from refloat.api.core import Container, Pod
from refloat.api.quantity import Quantity
from refloat.policy import critical_pods, demand
from refloat.policy import eviction_thresholds as thresholds
from refloat.policy.critical_pods import IsCritical
from refloat.policy.eviction_thresholds import DISK, MEMORY, PIDS, EvictionSettings, Threshold

REASON = "Evicted"

# The grace of whoever a hard threshold, or a limit of its own, evicts (D6.2).
IMMEDIATE_SECONDS = 1


@dataclass(frozen=True, slots=True)
class Level:
    """How much there is of something, and how much there could be."""

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
    """What a pod takes of its node."""

    memory: int = 0
    storage: int = 0
    """Of its containers and its emptyDir volumes together."""

    pids: int = 0
    containers: Mapping[str, ContainerUsage] = field(default_factory=dict)
    volumes: Mapping[str, VolumeUsage] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measured:
    """One look at a node; a signal that cannot be measured is missing."""

    node: Mapping[str, Level]
    pods: Mapping[str, PodUsage]
    """By uid; one of which nothing is known is missing, and is evicted first."""


@dataclass(frozen=True, slots=True)
class State:
    """What a node remembers from one look to the next."""

    first_seen: Mapping[Threshold, datetime] = field(default_factory=dict)
    met: tuple[Threshold, ...] = ()
    """Those that call for an eviction: their grace is over."""

    last_seen: Mapping[str, datetime] = field(default_factory=dict)
    """When each condition was last so."""

    conditions: tuple[str, ...] = ()
    """What the node says, in a fixed order."""


def observe(
    state: State,
    limits: Sequence[Threshold],
    node: Mapping[str, Level],
    *,
    now: datetime,
    transition_seconds: float,
) -> State:
    """What follows from this look and the ones before."""
    low = [each for each in limits if _is_met(each, node) or _holds_on(each, state, node)]
    first_seen = {each: state.first_seen.get(each, now) for each in low}
    met = tuple(each for each in low if _seconds(now, first_seen[each]) >= each.grace_seconds)
    last_seen = {
        **state.last_seen,
        **dict.fromkeys((thresholds.CONDITIONS[each.signal] for each in low), now),
    }
    conditions = tuple(
        name
        for name in thresholds.CONDITIONS.values()
        if name in last_seen and _seconds(now, last_seen[name]) < transition_seconds
    )
    return State(first_seen, met, last_seen, conditions)


def _is_met(limit: Threshold, node: Mapping[str, Level]) -> bool:
    level = node.get(limit.signal)
    return level is not None and limit.is_met(level.available, level.capacity)


def _holds_on(limit: Threshold, state: State, node: Mapping[str, Level]) -> bool:
    """Was it met, and has not enough been reclaimed since?"""
    level = node.get(limit.signal)
    if limit not in state.met or level is None:
        return False
    return limit.is_met(level.available, level.capacity, until_reclaimed=True)


def _seconds(now: datetime, then: datetime) -> float:
    return (now - then).total_seconds()


@dataclass(frozen=True, slots=True)
class Eviction:
    """Whom to evict, what to say, and how long it may take to end."""

    pod: Pod
    message: str
    grace_seconds: int = IMMEDIATE_SECONDS
    by_pressure: bool = False
    """By the node's need, not by its own excess: only then it is a disruption."""


def over_limits(
    pods: Iterable[Pod],
    usage: Mapping[str, PodUsage],
    is_critical: IsCritical = critical_pods.has_critical_priority,
) -> list[Eviction]:
    """Those that take more disk than they may; as many as there are."""
    found = []
    for pod in pods:
        used = usage.get(pod.metadata.uid)
        if used is None or is_critical(pod):
            continue
        text = _volume_excess(used) or _pod_excess(pod, used) or _container_excess(pod, used)
        if text:
            found.append(Eviction(pod, text))
    return found


def _volume_excess(used: PodUsage) -> str:
    for name, volume in used.volumes.items():
        limit = quantity.value(volume.size_limit) if volume.size_limit else 0
        if 0 < limit < volume.used:
            size = quantity.canonical(volume.size_limit)
            return f'Usage of EmptyDir volume "{name}" exceeds the limit "{size}". '
    return ""


def _pod_excess(pod: Pod, used: PodUsage) -> str:
    limit = storage_limit(pod)
    if limit is None or used.storage <= limit.value:
        return ""
    return f"Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "


def storage_limit(pod: Pod) -> Quantity | None:
    """Of all containers together, like a pod's requests; None when none has one."""
    spec = pod.spec
    texts = [_limit(each) for each in spec.containers or ()]
    texts += [_limit(each) for each in _sidecars(pod)]
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
    named = any(texts) or quantity.value(total) > 0
    return quantity.parse(total) if named else None


def _sidecars(pod: Pod) -> list[Container]:
    return [each for each in pod.spec.init_containers or () if each.restart_policy == "Always"]


def _limit(container: Container) -> str:
    return (container.resources.limits or {}).get(demand.STORAGE, "")


def _container_excess(pod: Pod, used: PodUsage) -> str:
    for each in pod.spec.containers or ():
        limit, usage = _limit(each), used.containers.get(each.name)
        if limit and usage is not None and 0 < quantity.value(limit) < usage.storage:
            size = quantity.canonical(limit)
            return f'Container {each.name} exceeded its local ephemeral storage limit "{size}". '
    return ""


def by_pressure(
    state: State,
    settings: EvictionSettings,
    pods: Sequence[Pod],
    measured: Measured,
    is_critical: IsCritical = critical_pods.has_critical_priority,
) -> Eviction | None:
    """The one pod that this look evicts, if the node is low and there is one (D6.2)."""
    if not state.met:
        return None
    limit = state.met[0]
    ranked = rank(limit.signal, pods, measured.pods)
    victim = next((each for each in ranked if not is_critical(each)), None)
    if victim is None:
        return None
    return Eviction(
        victim,
        message(victim, limit, measured),
        IMMEDIATE_SECONDS if limit.is_hard else _soft_grace(victim, settings),
        by_pressure=True,
    )


def _soft_grace(pod: Pod, settings: EvictionSettings) -> int:
    own = pod.spec.termination_grace_period_seconds
    most = settings.max_pod_grace_seconds
    return most if own is None else min(most, own)


def rank(signal: str, pods: Iterable[Pod], usage: Mapping[str, PodUsage]) -> list[Pod]:
    """From the first that has to go to the last.

    Unknown ones, then those above their requests, then the rest; within these
    by priority, then by how much they take beyond what they asked for. Process
    ids are not asked for: there priority comes first.
    """
    key = _by_pids if signal == PIDS else _by_excess(signal)
    return sorted(pods, key=lambda pod: key(pod, usage.get(pod.metadata.uid)))


def _by_pids(pod: Pod, used: PodUsage | None) -> tuple[int, ...]:
    priority = demand.priority(pod)
    return (priority, 0, 0) if used is None else (priority, 1, -used.pids)


def _by_excess(signal: str) -> Callable[[Pod, PodUsage | None], tuple[int, ...]]:
    resource = thresholds.RESOURCES[signal]

    def key(pod: Pod, used: PodUsage | None) -> tuple[int, ...]:
        priority = demand.priority(pod)
        if used is None:
            return (0, priority, 0)
        amount = used.memory if signal == MEMORY else used.storage
        excess = amount - dict(demand.needs(pod)).get(resource, 0)
        return (1 if excess > 0 else 2, priority, -excess)

    return key


def message(pod: Pod, limit: Threshold, measured: Measured) -> str:
    """Why this pod is evicted (behaviour D6.1)."""
    resource, level = thresholds.RESOURCES[limit.signal], measured.node[limit.signal]
    least = limit.amount.of(level.capacity)
    text = (
        f"The node was low on resource: {resource}. "
        f"Threshold quantity: {least}, available: {_written(limit.signal, level.available)}. "
    )
    used = measured.pods.get(pod.metadata.uid)
    if used is None or limit.signal == PIDS:
        return text
    return text + _pod_part(pod, limit.signal, used) + _container_parts(pod, limit.signal, used)


def _pod_part(pod: Pod, signal: str, used: PodUsage) -> str:
    asked = (pod.spec.resources.requests or {}) if pod.spec.resources is not None else {}
    if signal != MEMORY or demand.MEMORY not in asked:
        return ""
    return (
        f"Pod {pod.metadata.name} was using {_bytes(used.memory)}, "
        f"request is {quantity.canonical(asked[demand.MEMORY])}, "
        "has larger consumption of memory. "
    )


def _container_parts(pod: Pod, signal: str, used: PodUsage) -> str:
    resource, text = thresholds.RESOURCES[signal], ""
    for each in (*(pod.spec.containers or ()), *(pod.spec.init_containers or ())):
        usage = used.containers.get(each.name)
        if usage is None:
            continue
        amount = usage.memory if signal == MEMORY else usage.storage
        asked = (each.resources.requests or {}).get(resource, "0")
        if amount > quantity.value(asked):
            text += (
                f"Container {each.name} was using {_bytes(amount)}, "
                f"request is {quantity.canonical(asked)}, has larger consumption of {resource}. "
            )
    return text


def _written(signal: str, amount: int) -> str:
    return _bytes(amount) if signal in (MEMORY, DISK) else str(Quantity(amount, 0, "DecimalSI"))


def _bytes(amount: int) -> str:
    return str(Quantity(amount, 0, "BinarySI"))
