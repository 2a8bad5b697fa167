# SPDX-License-Identifier: Apache-2.0
"""Who makes room for pods that a node cannot do without (behaviour D6)."""

from typing import Any

from refloat.api.core import Pod
from refloat.policy.scheduling import critical_pods
from refloat.policy.scheduling.critical_pods import NotEnoughPods
from tests.cases import cases
from tests.unit.policy.scheduling import objects

CRITICAL = objects.pod("critical", priority=2_000_000_000)


def annotated(**annotations: str) -> Pod:
    return objects.pod(annotations=annotations)


def tenant(name: str, cpu: str = "", *, guaranteed: bool = False, priority: int = 0) -> Pod:
    requests = {"cpu": cpu, "memory": "1Mi"} if cpu else {}
    resources: dict[str, Any] = {"requests": requests}
    if guaranteed:
        resources["limits"] = requests
    body = {"name": "c", "resources": resources}
    return objects.pod(name, containers=[body], priority=priority)


@cases(
    "pod want",
    {
        "by priority": (CRITICAL, True),
        "a little less": (objects.pod(priority=1_999_999_999), False),
        "claims to be a mirror": (annotated(**{critical_pods.MIRROR: "x"}), False),
        "claims to be static": (annotated(**{"kubernetes.io/config.source": "file"}), False),
    },
)
def test_who_is_critical(pod: Pod, want: bool) -> None:
    """behaviour D6.2. Static pods are critical too; only their node knows them."""
    assert critical_pods.has_critical_priority(pod) == want


A, B, C = tenant("a"), tenant("b", "1"), tenant("c", "1", guaranteed=True)
BIG, SMALL = tenant("big", "4"), tenant("small", "2")


@cases(
    "pods missing want",
    {
        "rather those that were promised less": ([C, B], {"cpu": 500}, ["b"]),
        "best of all those with no promise": ([A, B, C], {"pods": 1}, ["a"]),
        "both, if one is not enough": ([A, B, C], {"cpu": 1500}, ["b", "c"]),
        "the smaller of two that do": ([BIG, SMALL], {"cpu": 2000}, ["small"]),
        "one rather than two": ([SMALL, B, BIG], {"cpu": 3500}, ["big"]),
        "the nearest first": ([SMALL, B], {"cpu": 2500}, ["small", "b"]),
        "of all classes": ([tenant("x", priority=9), C], {"pods": 2}, ["x", "c"]),
    },
)
def test_who_leaves(pods: list[Pod], missing: dict[str, int], want: list[str]) -> None:
    victims = critical_pods.victims(CRITICAL, pods, missing)
    assert not isinstance(victims, NotEnoughPods)
    assert [each.metadata.name for each in victims] == want


def test_nobody_leaves_if_that_would_not_do() -> None:
    victims = critical_pods.victims(CRITICAL, [B, C], {"cpu": 2500, "memory": 7 << 20})
    assert isinstance(victims, NotEnoughPods)
    assert str(victims) == (
        "no set of running pods found to reclaim resources: "
        "[(res: cpu, q: 500), (res: memory, q: 5242880), ]"
    )


def test_a_critical_pod_leaves_only_for_one_that_is_more_so() -> None:
    other = objects.pod("other", priority=2_000_000_001)
    assert isinstance(critical_pods.victims(CRITICAL, [other], {"pods": 1}), NotEnoughPods)
    assert critical_pods.victims(other, [CRITICAL], {"pods": 1}) == [CRITICAL]
