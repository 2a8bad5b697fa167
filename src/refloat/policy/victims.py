# SPDX-License-Identifier: Apache-2.0
"""Which pods go when there are too many (behaviour A7.8, A9.3, A9.4).

The least is lost with a pod that has done the least: one that has no node
yet, that is pending, that is not ready. How many go is said by `scaling`.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TypeAlias

from refloat.api import structs, times
from refloat.api.core import PENDING, RUNNING, UNKNOWN, ContainerStatus, Pod
from refloat.policy import pod_state
from refloat.policy.terms import Terms

_PHASES = {PENDING: 0, UNKNOWN: 1, RUNNING: 2}

_Rank: TypeAlias = tuple[bool, int, bool, float, int, int, float]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def in_order(pods: Iterable[Pod]) -> list[Pod]:
    """The pods, the first to be deleted first; equal ones keep their order."""
    return sorted(pods, key=_rank)


def choose(terms: Terms, active: Sequence[Pod], at_least: int) -> list[Pod]:
    """The pods to delete: those that must not be there, and then as many as it takes."""
    chosen, left = _misplaced(terms, active) if terms.indexed else ([], list(active))
    if len(chosen) < at_least:
        chosen += in_order(left)[: at_least - len(chosen)]
    return chosen


def _misplaced(terms: Terms, active: Sequence[Pod]) -> tuple[list[Pod], list[Pod]]:
    """Pods without an index of the Job or with another pod's, and the others."""
    chosen: list[Pod] = []
    by_index: dict[int, list[Pod]] = {}
    for pod in active:
        index = terms.index(pod)
        if index is None:
            chosen.append(pod)
        else:
            by_index.setdefault(index, []).append(pod)
    left: list[Pod] = []
    for _, same in sorted(by_index.items()):
        # Hardly ever more than one; and to rank each pod at each sync is most of the sync.
        *rest, best = in_order(same) if len(same) > 1 else same
        chosen += rest
        left.append(best)
    return chosen, left


def _rank(pod: Pod) -> _Rank:
    ready = structs.find(pod.status.conditions, "Ready")
    is_ready = ready is not None and ready.status == "True"
    regular, beside = _restarts(pod)
    return (
        bool(pod.spec.node_name),
        _PHASES.get(pod.status.phase, 0),
        is_ready,
        _younger_first(ready.last_transition_time) if ready is not None and is_ready else 0.0,
        -regular,
        -beside,
        _younger_first(pod.metadata.creation_timestamp),
    )


def _younger_first(time: str | None) -> float:
    """An unknown time sorts before all others, then the latest first."""
    if time is None:
        return float("-inf")
    return -(times.parse(time) - _EPOCH).total_seconds()


def _restarts(pod: Pod) -> tuple[int, int]:
    """The most restarts of a regular container, and of a sidecar."""
    regular = _most(pod.status.container_statuses or ())
    if not pod.status.init_container_statuses:
        return regular, 0
    names = pod_state.sidecars(pod)
    return regular, _most(each for each in pod.status.init_container_statuses if each.name in names)


def _most(statuses: Iterable[ContainerStatus]) -> int:
    return max((each.restart_count for each in statuses), default=0)
