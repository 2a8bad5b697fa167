# SPDX-License-Identifier: Apache-2.0
"""When a node is low, whom it evicts, and in which words (behaviour D6.1, D6.2)."""

from typing import Any

import pytest

from refloat.api.core import Pod
from refloat.policy import kubelet_eviction as eviction
from refloat.policy.eviction_thresholds import DISK, MEMORY, PIDS, EvictionSettings
from refloat.policy.kubelet_eviction import (
    ContainerUsage,
    Level,
    Measured,
    PodUsage,
    State,
    VolumeUsage,
)
from tests.unit.policy import scheduling
from tests.unit.policy.made import at

GI = 1 << 30


def pod(name: str, **more: Any) -> Pod:
    requests = more.pop("requests", {})
    limits = more.pop("limits", {})
    made = {"name": "c", "resources": {"requests": requests, "limits": limits}}
    return scheduling.pod(name, containers=[made], **more)


def low(available: int, capacity: int = 100) -> dict[str, Level]:
    return {MEMORY: Level(available, capacity)}


def walk(settings: EvictionSettings, looks: list[tuple[float, int]]) -> list[State]:
    """The states after looks at these seconds, with so much available."""
    states, state = [], State()
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
    """Whether the node says to be low, and whether it evicts."""
    return [(bool(each.conditions), bool(each.met)) for each in walk(settings, looks)]


def test_less_than_the_threshold_is_too_little_and_as_much_is_not() -> None:
    settings = EvictionSettings(hard={MEMORY: "50"})
    assert calls(settings, [(0, 50)]) == [(False, False)]
    assert calls(settings, [(0, 49)]) == [(True, True)]


def test_a_signal_that_nobody_measures_is_never_low() -> None:
    settings = EvictionSettings(hard={DISK: "99%"})
    assert calls(settings, [(0, 0)]) == [(False, False)]


def test_the_condition_outlives_the_pressure_by_the_transition() -> None:
    """Five minutes from when it was last so; nobody is evicted meanwhile."""
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
    state = eviction.observe(State(), settings.thresholds(), every, now=at(0), transition_seconds=1)
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
@pytest.mark.parametrize(
    ("pods", "want"),
    [
        pytest.param([IDLE, GREEDY], ["greedy", "idle"], id="whoever exceeds its request"),
        pytest.param([GREEDY, MORE], ["more", "greedy"], id="by how much it exceeds"),
        pytest.param([IMPORTANT, MORE], ["more", "important"], id="the less important"),
        pytest.param([IMPORTANT, IDLE], ["important", "idle"], id="excess before importance"),
        pytest.param([GREEDY, UNKNOWN], ["unknown", "greedy"], id="one of which nothing is known"),
        pytest.param([PROMISED, GREEDY], ["greedy", "more"], id="what was promised is no excess"),
    ],
)
def test_who_goes_first(signal: str, pods: list[Pod], want: list[str]) -> None:
    """behaviour D6.2."""
    ranked = eviction.rank(signal, pods, MEASURED)
    assert [each.metadata.name for each in ranked] == want


@pytest.mark.parametrize(
    ("pods", "want"),
    [
        pytest.param([IDLE, MORE, GREEDY], ["more", "greedy", "idle"], id="most first"),
        pytest.param([IMPORTANT, IDLE], ["idle", "important"], id="importance before number"),
    ],
)
def test_who_goes_first_for_process_ids(pods: list[Pod], want: list[str]) -> None:
    ranked = eviction.rank(PIDS, pods, MEASURED)
    assert [each.metadata.name for each in ranked] == want


def _by_pressure(
    settings: EvictionSettings, pods: list[Pod], measured: Measured
) -> eviction.Eviction | None:
    state = State()
    for seconds in (0, 1000):
        state = eviction.observe(
            state,
            settings.thresholds(),
            measured.node,
            now=at(seconds),
            transition_seconds=300,
        )
    return eviction.by_pressure(state, settings, pods, measured)


@pytest.mark.parametrize(
    ("own", "most", "want"),
    [
        pytest.param(30, 20, 20, id="the node's"),
        pytest.param(5, 20, 5, id="the pod's own"),
    ],
)
def test_a_soft_eviction_gives_the_smaller_grace(own: int, most: int, want: int) -> None:
    settings = EvictionSettings(
        hard={},
        soft={MEMORY: "50"},
        soft_grace_seconds={MEMORY: 1},
        max_pod_grace_seconds=most,
    )
    victim = pod("p", terminationGracePeriodSeconds=own)
    found = _by_pressure(settings, [victim], Measured(low(1), {}))
    assert found is not None
    assert (found.grace_seconds, found.by_pressure) == (want, True)


def test_a_hard_eviction_gives_a_second() -> None:
    settings = EvictionSettings(hard={MEMORY: "50"}, max_pod_grace_seconds=20)
    found = _by_pressure(settings, [pod("p")], Measured(low(1), {}))
    assert found is not None
    assert found.grace_seconds == 1


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"priority": 2_000_000_000}, id="by its priority"),
    ],
)
def test_critical_pods_are_passed_over(more: dict[str, Any]) -> None:
    settings = EvictionSettings(hard={MEMORY: "50"})
    measured = Measured(low(1), {})
    assert _by_pressure(settings, [pod("p", **more)], measured) is None
    found = _by_pressure(settings, [pod("p", **more), pod("q")], measured)
    assert found is not None
    assert found.pod.metadata.name == "q"


def _two_containers() -> Pod:
    containers = [
        {"name": "a", "resources": {"requests": {"memory": "1Gi"}}},
        {"name": "b"},
        {"name": "c", "resources": {"requests": {"memory": "3Gi"}}},
    ]
    return scheduling.pod("p", containers=containers)


@pytest.mark.parametrize(
    ("settings", "victim", "used", "want"),
    [
        pytest.param(
            EvictionSettings(hard={MEMORY: "1Gi"}),
            _two_containers(),
            PodUsage(
                containers={
                    "a": ContainerUsage(memory=2 * GI),
                    "b": ContainerUsage(memory=1500),
                    "c": ContainerUsage(memory=GI),
                }
            ),
            "Threshold quantity: 1Gi, available: 12Ki. "
            "Container a was using 2Gi, request is 1Gi, has larger consumption of memory. "
            "Container b was using 1500, request is 0, has larger consumption of memory. ",
            id="containers above their requests, and no other",
        ),
        pytest.param(
            EvictionSettings(hard={MEMORY: "10%"}),
            pod("p"),
            None,
            "Threshold quantity: 107374184, available: 12Ki. ",
            id="a share, and nothing known of the pod",
        ),
        pytest.param(
            EvictionSettings(hard={MEMORY: "1Gi"}),
            scheduling.pod("p", resources={"requests": {"memory": "512Mi"}}),
            PodUsage(memory=2 * GI),
            "Threshold quantity: 1Gi, available: 12Ki. "
            "Pod p was using 2Gi, request is 512Mi, has larger consumption of memory. ",
            id="a pod that asks as a whole",
        ),
    ],
)
def test_what_is_said(
    settings: EvictionSettings, victim: Pod, used: PodUsage | None, want: str
) -> None:
    """behaviour D6.1: with a space at the end."""
    pods = {} if used is None else {"uid-p": used}
    measured = Measured({MEMORY: Level(12 << 10, GI)}, pods)
    found = _by_pressure(settings, [victim], measured)
    assert found is not None
    assert found.message == f"The node was low on resource: memory. {want}"


def _volume(used: int, limit: str) -> PodUsage:
    return PodUsage(storage=used, volumes={"v": VolumeUsage(used, limit)})


@pytest.mark.parametrize(
    ("subject", "used", "want"),
    [
        pytest.param(pod("p"), PodUsage(storage=GI), None, id="no limit"),
        pytest.param(pod("p"), _volume(GI, "1Gi"), None, id="as much as the volume may have"),
        pytest.param(
            pod("p"),
            _volume(GI + 1, "1Gi"),
            'Usage of EmptyDir volume "v" exceeds the limit "1Gi". ',
            id="a byte more",
        ),
        pytest.param(pod("p"), _volume(GI, "0"), None, id="a limit of nothing is none"),
        pytest.param(
            pod("p", limits={"ephemeral-storage": "1Gi"}),
            _volume(GI + 1, "1Gi"),
            'Usage of EmptyDir volume "v" exceeds the limit "1Gi". ',
            id="volumes are asked before the pod",
        ),
        pytest.param(
            pod("p", limits={"ephemeral-storage": "1Gi"}),
            PodUsage(storage=GI + 1, containers={"c": ContainerUsage(storage=GI + 1)}),
            "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ",
            id="the pod is asked before its containers",
        ),
        pytest.param(
            pod("p", priority=2_000_000_000),
            _volume(GI + 1, "1Gi"),
            None,
            id="critical ones are not asked",
        ),
    ],
)
def test_limits_on_disk(subject: Pod, used: PodUsage, want: str | None) -> None:
    """behaviour D6: no disruption, whatever the gates."""
    found = eviction.over_limits([subject], {"uid-p": used})
    assert [each.message for each in found] == ([] if want is None else [want])
    assert not any(each.by_pressure for each in found)


@pytest.mark.parametrize(
    ("containers", "inits", "want"),
    [
        pytest.param(["1Gi", "1Gi"], [], "2Gi", id="all together"),
        pytest.param(["1Gi", ""], [], "1Gi", id="one without does not count"),
        pytest.param(["1Gi"], [("3Gi", "")], "3Gi", id="an init container that may take more"),
        pytest.param(["1Gi"], [("1Gi", "Always")], "2Gi", id="a sidecar beside it"),
        pytest.param(
            ["1Gi"], [("1Gi", "Always"), ("3Gi", "")], "4Gi", id="an init container after a sidecar"
        ),
        pytest.param([""], [], None, id="none"),
    ],
)
def test_the_limit_of_a_pod(
    containers: list[str], inits: list[tuple[str, str]], want: str | None
) -> None:
    def limited(limit: str, policy: str = "") -> dict[str, Any]:
        limits = {"ephemeral-storage": limit} if limit else {}
        return {"name": "c", "resources": {"limits": limits}, "restartPolicy": policy or None}

    subject = scheduling.pod(
        containers=[limited(each) for each in containers],
        initContainers=[limited(*each) for each in inits],
    )
    found = eviction.storage_limit(subject)
    assert (None if found is None else str(found)) == want
