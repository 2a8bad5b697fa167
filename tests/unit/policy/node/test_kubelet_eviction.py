# SPDX-License-Identifier: Apache-2.0
"""When a node is low, which pods it evicts, and the messages (behaviour D6.1, D6.2)."""

from typing import Any

import pytest

from refloat.api.core import Pod
from refloat.policy.node import kubelet_eviction as eviction
from refloat.policy.node.eviction_thresholds import DISK, MEMORY, PIDS, EvictionSettings
from refloat.policy.node.kubelet_eviction import (
    ContainerUsage,
    EvictionState,
    Level,
    PodUsage,
    Usage,
    VolumeUsage,
)
from tests.cases import cases
from tests.unit.policy.builders import at
from tests.unit.policy.scheduling import objects

GI = 1 << 30


def pod(name: str, **more: Any) -> Pod:
    requests = more.pop("requests", {})
    limits = more.pop("limits", {})
    body = {"name": "c", "resources": {"requests": requests, "limits": limits}}
    return objects.pod(name, containers=[body], **more)


def low(available: int, capacity: int = 100) -> dict[str, Level]:
    return {MEMORY: Level(available, capacity)}


def walk(settings: EvictionSettings, looks: list[tuple[float, int]]) -> list[EvictionState]:
    """The states after looks at these seconds, with so much available."""
    states, state = [], EvictionState()
    for seconds, available in looks:
        state = eviction.observe(
            state,
            settings.thresholds(),
            low(available),
            now=at(seconds),
            transition_seconds=settings.transition_seconds,
        )
        states.append(state)
    return states


def calls(settings: EvictionSettings, looks: list[tuple[float, int]]) -> list[tuple[bool, bool]]:
    """Whether the node has the condition, and whether it evicts."""
    return [(bool(each.conditions), bool(each.met)) for each in walk(settings, looks)]


def test_less_than_the_threshold_is_too_little_and_as_much_is_not() -> None:
    settings = EvictionSettings(hard={MEMORY: "50"})
    assert calls(settings, [(0, 50)]) == [(False, False)]
    assert calls(settings, [(0, 49)]) == [(True, True)]


def test_a_signal_that_nobody_measures_is_never_low() -> None:
    settings = EvictionSettings(hard={DISK: "99%"})
    assert calls(settings, [(0, 0)]) == [(False, False)]


def test_the_condition_outlives_the_pressure_by_the_transition() -> None:
    """Five minutes from the end of the pressure; the node evicts no pod during this time."""
    settings = EvictionSettings(hard={MEMORY: "50"})
    looks: list[tuple[float, int]] = [(0, 10), (10, 10), (20, 90), (309, 90), (310, 90)]
    assert calls(settings, looks) == [
        (True, True),
        (True, True),
        (True, False),
        (True, False),
        (False, False),
    ]


def test_a_soft_threshold_waits_and_begins_anew_when_it_was_over() -> None:
    settings = EvictionSettings(hard={}, soft={MEMORY: "50"}, soft_grace_seconds={MEMORY: 30})
    looks: list[tuple[float, int]] = [(0, 10), (20, 10), (25, 90), (30, 10), (59, 10), (60, 10)]
    assert [evicts for _, evicts in calls(settings, looks)] == [
        False,
        False,
        False,
        False,
        False,
        True,
    ]


def test_what_was_low_is_low_until_enough_is_reclaimed() -> None:
    settings = EvictionSettings(
        hard={MEMORY: "50"}, minimum_reclaim={MEMORY: "20"}, transition_seconds=0
    )
    looks: list[tuple[float, int]] = [(0, 60), (10, 49), (20, 69), (30, 70), (40, 60)]
    assert [evicts for _, evicts in calls(settings, looks)] == [False, True, True, False, False]


def test_memory_is_reclaimed_before_anything_else() -> None:
    settings = EvictionSettings(hard={PIDS: "50", DISK: "50", MEMORY: "50"})
    every = {signal: Level(1, 100) for signal in (PIDS, DISK, MEMORY)}
    state = eviction.observe(
        EvictionState(), settings.thresholds(), every, now=at(0), transition_seconds=1
    )
    assert [each.signal for each in state.met] == [MEMORY, DISK, PIDS]
    assert state.conditions == ("MemoryPressure", "DiskPressure", "PIDPressure")


MEASURED = {
    "uid-idle": PodUsage(memory=1 * GI, storage=1 * GI, pids=1),
    "uid-greedy": PodUsage(memory=3 * GI, storage=3 * GI, pids=30),
    "uid-more": PodUsage(memory=5 * GI, storage=5 * GI, pids=50),
    "uid-important": PodUsage(memory=9 * GI, storage=9 * GI, pids=90),
}
TWO = {"memory": "2Gi", "ephemeral-storage": "2Gi"}
IDLE, GREEDY, MORE = (pod(name, requests=TWO) for name in ("idle", "greedy", "more"))
IMPORTANT = pod("important", requests=TWO, priority=1000)
UNKNOWN = pod("unknown", requests=TWO, priority=2000)
PROMISED = pod("more", requests={"memory": "6Gi", "ephemeral-storage": "6Gi"})


@pytest.mark.parametrize("signal", [MEMORY, DISK])
@cases(
    "pods want",
    {
        "whoever exceeds its request": ([IDLE, GREEDY], ["greedy", "idle"]),
        "by how much it exceeds": ([GREEDY, MORE], ["more", "greedy"]),
        "the less important": ([IMPORTANT, MORE], ["more", "important"]),
        "excess before importance": ([IMPORTANT, IDLE], ["important", "idle"]),
        "one of which nothing is known": ([GREEDY, UNKNOWN], ["unknown", "greedy"]),
        "what was promised is no excess": ([PROMISED, GREEDY], ["greedy", "more"]),
    },
)
def test_who_goes_first(signal: str, pods: list[Pod], want: list[str]) -> None:
    """behaviour D6.2."""
    ranked = eviction.rank(signal, pods, MEASURED)
    assert [each.metadata.name for each in ranked] == want


@cases(
    "pods want",
    {
        "most first": ([IDLE, MORE, GREEDY], ["more", "greedy", "idle"]),
        "importance before number": ([IMPORTANT, IDLE], ["idle", "important"]),
    },
)
def test_who_goes_first_for_process_ids(pods: list[Pod], want: list[str]) -> None:
    ranked = eviction.rank(PIDS, pods, MEASURED)
    assert [each.metadata.name for each in ranked] == want


def _by_pressure(
    settings: EvictionSettings, pods: list[Pod], measured: Usage
) -> eviction.Eviction | None:
    state = EvictionState()
    for seconds in (0, 1000):
        state = eviction.observe(
            state, settings.thresholds(), measured.node, now=at(seconds), transition_seconds=300
        )
    return eviction.by_pressure(state, settings, pods, measured)


@cases("own most want", {"the node's": (30, 20, 20), "the pod's own": (5, 20, 5)})
def test_a_soft_eviction_gives_the_smaller_grace(own: int, most: int, want: int) -> None:
    settings = EvictionSettings(
        hard={}, soft={MEMORY: "50"}, soft_grace_seconds={MEMORY: 1}, max_pod_grace_seconds=most
    )
    victim = pod("p", terminationGracePeriodSeconds=own)
    eviction = _by_pressure(settings, [victim], Usage(low(1), {}))
    assert eviction is not None
    assert (eviction.grace_seconds, eviction.by_pressure) == (want, True)


def test_a_hard_eviction_gives_a_second() -> None:
    settings = EvictionSettings(hard={MEMORY: "50"}, max_pod_grace_seconds=20)
    eviction = _by_pressure(settings, [pod("p")], Usage(low(1), {}))
    assert eviction is not None
    assert eviction.grace_seconds == 1


@cases("more", {"by its priority": {"priority": 2_000_000_000}})
def test_critical_pods_are_passed_over(more: dict[str, Any]) -> None:
    settings = EvictionSettings(hard={MEMORY: "50"})
    measured = Usage(low(1), {})
    assert _by_pressure(settings, [pod("p", **more)], measured) is None
    eviction = _by_pressure(settings, [pod("p", **more), pod("q")], measured)
    assert eviction is not None
    assert eviction.pod.metadata.name == "q"


def _two_containers() -> Pod:
    containers = [
        {"name": "a", "resources": {"requests": {"memory": "1Gi"}}},
        {"name": "b"},
        {"name": "c", "resources": {"requests": {"memory": "3Gi"}}},
    ]
    return objects.pod("p", containers=containers)


@cases(
    "settings victim used want",
    {
        "containers above their requests, and no other": (
            EvictionSettings(hard={MEMORY: "1Gi"}),
            _two_containers(),
            PodUsage(
                containers={
                    "a": ContainerUsage(memory=2 * GI),
                    "b": ContainerUsage(memory=1500),
                    "c": ContainerUsage(memory=GI),
                }
            ),
            (
                "Threshold quantity: 1Gi, available: 12Ki. "
                "Container a was using 2Gi, request is 1Gi, has larger consumption of memory. "
                "Container b was using 1500, request is 0, has larger consumption of memory. "
            ),
        ),
        "a share, and nothing known of the pod": (
            EvictionSettings(hard={MEMORY: "10%"}),
            pod("p"),
            None,
            "Threshold quantity: 107374184, available: 12Ki. ",
        ),
        "a pod that asks as a whole": (
            EvictionSettings(hard={MEMORY: "1Gi"}),
            objects.pod("p", resources={"requests": {"memory": "512Mi"}}),
            PodUsage(memory=2 * GI),
            (
                "Threshold quantity: 1Gi, available: 12Ki. "
                "Pod p was using 2Gi, request is 512Mi, has larger consumption of memory. "
            ),
        ),
    },
)
def test_what_is_said(
    settings: EvictionSettings, victim: Pod, used: PodUsage | None, want: str
) -> None:
    """behaviour D6.1: with a space at the end."""
    pods = {} if used is None else {"uid-p": used}
    measured = Usage({MEMORY: Level(12 << 10, GI)}, pods)
    eviction = _by_pressure(settings, [victim], measured)
    assert eviction is not None
    assert eviction.message == f"The node was low on resource: memory. {want}"


def _volume(used: int, limit: str) -> PodUsage:
    return PodUsage(storage=used, volumes={"v": VolumeUsage(used, limit)})


@cases(
    "subject used want",
    {
        "no limit": (pod("p"), PodUsage(storage=GI), None),
        "as much as the volume may have": (pod("p"), _volume(GI, "1Gi"), None),
        "a byte more": (
            pod("p"),
            _volume(GI + 1, "1Gi"),
            'Usage of EmptyDir volume "v" exceeds the limit "1Gi". ',
        ),
        "a limit of nothing is none": (pod("p"), _volume(GI, "0"), None),
        "volumes are asked before the pod": (
            pod("p", limits={"ephemeral-storage": "1Gi"}),
            _volume(GI + 1, "1Gi"),
            'Usage of EmptyDir volume "v" exceeds the limit "1Gi". ',
        ),
        "the pod is asked before its containers": (
            pod("p", limits={"ephemeral-storage": "1Gi"}),
            PodUsage(storage=GI + 1, containers={"c": ContainerUsage(storage=GI + 1)}),
            "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ",
        ),
        "critical ones are not asked": (
            pod("p", priority=2_000_000_000),
            _volume(GI + 1, "1Gi"),
            None,
        ),
    },
)
def test_limits_on_disk(subject: Pod, used: PodUsage, want: str | None) -> None:
    """behaviour D6: no disruption, whatever the gates."""
    lists = eviction.over_limits([subject], {"uid-p": used})
    assert [each.message for each in lists] == ([] if want is None else [want])
    assert not any(each.by_pressure for each in lists)


@cases(
    "containers inits want",
    {
        "all together": (["1Gi", "1Gi"], [], "2Gi"),
        "one without does not count": (["1Gi", ""], [], "1Gi"),
        "an init container that may take more": (["1Gi"], [("3Gi", "")], "3Gi"),
        "a sidecar beside it": (["1Gi"], [("1Gi", "Always")], "2Gi"),
        "an init container after a sidecar": (["1Gi"], [("1Gi", "Always"), ("3Gi", "")], "4Gi"),
        "none": ([""], [], None),
    },
)
def test_the_limit_of_a_pod(
    containers: list[str], inits: list[tuple[str, str]], want: str | None
) -> None:
    def limited(limit: str, policy: str = "") -> dict[str, Any]:
        limits = {"ephemeral-storage": limit} if limit else {}
        return {"name": "c", "resources": {"limits": limits}, "restartPolicy": policy or None}

    subject = objects.pod(
        containers=[limited(each) for each in containers],
        initContainers=[limited(*each) for each in inits],
    )
    result = eviction.storage_limit(subject)
    assert (None if result is None else str(result)) == want
