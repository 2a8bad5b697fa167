# SPDX-License-Identifier: Apache-2.0
"""Which pods to delete when there are too many (behaviour A7.8, A9.3, A9.4).

Pods that have done the least work go first: without a node, then pending, then not ready. `scaling`
decides how many.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TypeAlias

from refloat.api import structs, times
from refloat.api.core import PENDING, RUNNING, UNKNOWN, ContainerStatus, Pod
from refloat.policy.job import pod_state
from refloat.policy.job.job_spec import EffectiveSpec

_PHASES = {PENDING: 0, UNKNOWN: 1, RUNNING: 2}

_Rank: TypeAlias = tuple[bool, int, bool, float, int, int, float]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def in_order(pods: Iterable[Pod]) -> list[Pod]:
    """The pods, the first to be deleted first; equal ones keep their order."""
    return sorted(pods, key=_rank)


def choose(spec: EffectiveSpec, active: Sequence[Pod], at_least: int) -> list[Pod]:
    """The pods to delete: misplaced ones first, and at least `at_least`."""
    pods: list[Pod] = []
    others = [] if spec.indexed else list(active)
    if spec.indexed:  # a pod is misplaced without an index of the Job or with another pod's
        by_index: dict[int, list[Pod]] = {}
        for pod in active:
            index = spec.index(pod)
            if index is None:
                pods.append(pod)
            else:
                by_index.setdefault(index, []).append(pod)
        for _, same in sorted(by_index.items()):
            # Seldom more than one pod, and ranking is the most expensive part of a sync.
            *rest, best = in_order(same) if len(same) > 1 else same
            pods += rest
            others.append(best)
    if len(pods) < at_least:
        pods += in_order(others)[: at_least - len(pods)]
    return pods


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
