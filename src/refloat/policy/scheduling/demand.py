# SPDX-License-Identifier: Apache-2.0
"""What a pod requests from a node, computed once and shared by all pods with the same requests.

The pods of one Job are alike to the scheduler, so results for one of them serve the next. Two pods
have the same `Demand` object exactly when no node can distinguish them, as long as the object is in
use. `fit` compares a demand with a node.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias
from weakref import WeakValueDictionary

from refloat.api import quantity
from refloat.api.core import Container, Pod, Toleration
from refloat.policy.scheduling import node_affinity
from refloat.policy.scheduling.node_affinity import NodeAffinity

CPU, MEMORY, STORAGE, PODS = "cpu", "memory", "ephemeral-storage", "pods"

Needs: TypeAlias = tuple[tuple[str, int], ...]
"""Amounts above zero by resource: thousandths of a cpu, whole units of all others."""

Port: TypeAlias = tuple[str, str, int]
"""Address, protocol and number of a port of the node."""

ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - compared with, never bound

# Kubernetes reads no amount finer than this; sums are exact and rounded once.
_NANO = 10**9
_NANO_IN_MILLI = 10**6

# No amount is larger: beyond every node, and still a number to divide by another.
_MOST = 2**63 - 1

_ORDER = {CPU: 0, MEMORY: 1, STORAGE: 2}

# Resources that a pod as a whole may ask for; others only its containers.
_POD_LEVEL = (CPU, MEMORY)
_HUGE_PAGES = "hugepages-"

# Distinct amounts, and names of resources, that are remembered.
_CACHED = 4096


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Demand:
    """Compared by identity: `Demands` gives out one object for equal ones."""

    priority: int
    preempts: bool
    needs: Needs
    ports: tuple[Port, ...]
    selector: tuple[tuple[str, str], ...]
    affinity: NodeAffinity
    tolerations: tuple[Toleration, ...]


class Demands:
    """Gives equal demands one object.

    An object is forgotten only when it is unused, because waiting pods are grouped by it.
    """

    def __init__(self) -> None:
        self._known: WeakValueDictionary[object, Demand] = WeakValueDictionary()

    def of(self, pod: Pod) -> Demand:
        spec = pod.spec
        affinity = bytes(spec.affinity)
        key = (
            priority(pod),
            spec.preemption_policy != "Never",
            needs(pod),
            ports(pod),
            tuple((spec.node_selector or {}).items()),
            affinity,
            spec.tolerations or (),
        )
        demand = self._known.get(key)
        if demand is None:
            demand = Demand(*key[:5], node_affinity.compiled(affinity), key[6])
            self._known[key] = demand
        return demand


def priority(pod: Pod) -> int:
    return pod.spec.priority or 0


def needs(pod: Pod) -> Needs:
    """What all containers of a pod need at the most demanding moment.

    Containers run together, init containers one after another before them, and sidecars beside
    everything that starts after them. Requests of the pod as a whole replace the sum of its
    containers; its overhead is added.
    """
    spec = pod.spec
    total: dict[str, int] = {}
    for container in spec.containers or ():
        _add(total, _asked(container))
    if spec.init_containers:
        _start(total, spec.init_containers)
    if spec.resources is not None:
        total.update(
            (name, amount)
            for name, amount in _read(spec.resources.requests).items()
            if name in _POD_LEVEL or name.startswith(_HUGE_PAGES)
        )
    if spec.overhead:
        _add(total, _read(spec.overhead))
    return _rounded(total)


def _start(total: dict[str, int], init_containers: tuple[Container, ...]) -> None:
    """Raise the total to the needs of the pod's start."""
    beside: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in init_containers:
        own = _asked(container)
        if container.restart_policy == "Always":
            _add(total, own)
            _add(beside, own)
            moment = beside
        else:
            _add(own, beside)
            moment = own
        _raise_to(peak, moment)
    _raise_to(total, peak)


def ports(pod: Pod) -> tuple[Port, ...]:
    """The node's ports that the pod uses while it runs."""
    host_ports = [
        (port.host_ip or ANY_ADDRESS, port.protocol or "TCP", port.host_port)
        for container in _running(pod)
        for port in container.ports or ()
        if port.host_port
    ]
    return tuple(host_ports)


def _running(pod: Pod) -> list[Container]:
    spec = pod.spec
    sidecars = [each for each in spec.init_containers or () if each.restart_policy == "Always"]
    return [*sidecars, *(spec.containers or ())]


def amounts(quantities: Mapping[str, str] | None) -> dict[str, int]:
    """Quantities in the units of `Needs`, for example what a node has to give."""
    return dict(_rounded(_read(quantities)))


def _asked(container: Container) -> dict[str, int]:
    return _read(container.resources.requests)


def _read(quantities: Mapping[str, str] | None) -> dict[str, int]:
    if not quantities:
        return {}
    return {name: _nano(text) for name, text in quantities.items() if _counts(name)}


@lru_cache(_CACHED)
def _counts(name: str) -> bool:
    """Whether a scheduler considers this resource."""
    is_standard = name in _ORDER or name == PODS
    return is_standard or "/" in name or name.startswith((_HUGE_PAGES, "attachable-volumes-"))


@lru_cache(_CACHED)
def _nano(text: str) -> int:
    value = quantity.parse(text).value * _NANO
    return -int(-value // 1)


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(total: dict[str, int], least: Mapping[str, int]) -> None:
    for name, amount in least.items():
        if amount > total.get(name, 0):
            total[name] = amount


def _rounded(total: Mapping[str, int]) -> Needs:
    units = [
        (name, min(_MOST, -(-nano // (_NANO_IN_MILLI if name == CPU else _NANO))))
        for name, nano in total.items()
        if nano > 0
    ]
    return tuple(sorted(units, key=_place)) if len(units) > 1 else tuple(units)


def _place(need: tuple[str, int]) -> tuple[int, str]:
    return _ORDER.get(need[0], len(_ORDER)), need[0]
