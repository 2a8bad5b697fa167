# SPDX-License-Identifier: Apache-2.0
"""Who makes room for pods that a node cannot do without (behaviour D6)."""

from typing import Any

import msgspec
import pytest

from refloat.api.core import Pod
from refloat.policy import critical_pods
from refloat.policy.critical_pods import Unreachable
from tests.unit.policy import scheduling

CRITICAL = scheduling.pod("critical", priority=2_000_000_000)


def annotated(**annotations: str) -> Pod:
    made = scheduling.pod()
    meta = msgspec.structs.replace(made.metadata, annotations=annotations)
    return msgspec.structs.replace(made, metadata=meta)


def tenant(name: str, cpu: str = "", *, guaranteed: bool = False, priority: int = 0) -> Pod:
    asked = {"cpu": cpu, "memory": "1Mi"} if cpu else {}
    resources: dict[str, Any] = {"requests": asked}
    if guaranteed:
        resources["limits"] = asked
    made = {"name": "c", "resources": resources}
    return scheduling.pod(name, containers=[made], priority=priority)


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        pytest.param(CRITICAL, True, id="by priority"),
        pytest.param(scheduling.pod(priority=1_999_999_999), False, id="a little less"),
        pytest.param(annotated(**{critical_pods.MIRROR: "x"}), False, id="claims to be a mirror"),
        pytest.param(
            annotated(**{"kubernetes.io/config.source": "file"}), False, id="claims to be static"
        ),
    ],
)
def test_who_is_critical(pod: Pod, want: bool) -> None:
    """behaviour D6.2. Static pods are critical too; only their node knows them."""
    assert critical_pods.has_critical_priority(pod) == want


A, B, C = tenant("a"), tenant("b", "1"), tenant("c", "1", guaranteed=True)
BIG, SMALL = tenant("big", "4"), tenant("small", "2")


@pytest.mark.parametrize(
    ("pods", "missing", "want"),
    [
        pytest.param([C, B], {"cpu": 500}, ["b"], id="rather those that were promised less"),
        pytest.param([A, B, C], {"pods": 1}, ["a"], id="best of all those with no promise"),
        pytest.param([A, B, C], {"cpu": 1500}, ["b", "c"], id="both, if one is not enough"),
        pytest.param([BIG, SMALL], {"cpu": 2000}, ["small"], id="the smaller of two that do"),
        pytest.param([SMALL, B, BIG], {"cpu": 3500}, ["big"], id="one rather than two"),
        pytest.param([SMALL, B], {"cpu": 2500}, ["small", "b"], id="the nearest first"),
        pytest.param([tenant("x", priority=9), C], {"pods": 2}, ["x", "c"], id="of all classes"),
    ],
)
def test_who_leaves(pods: list[Pod], missing: dict[str, int], want: list[str]) -> None:
    found = critical_pods.victims(CRITICAL, pods, missing)
    assert not isinstance(found, Unreachable)
    assert [each.metadata.name for each in found] == want


def test_nobody_leaves_if_that_would_not_do() -> None:
    found = critical_pods.victims(CRITICAL, [B, C], {"cpu": 2500, "memory": 7 << 20})
    assert isinstance(found, Unreachable)
    assert str(found) == (
        "no set of running pods found to reclaim resources: "
        "[(res: cpu, q: 500), (res: memory, q: 5242880), ]"
    )


def test_a_critical_pod_leaves_only_for_one_that_is_more_so() -> None:
    other = scheduling.pod("other", priority=2_000_000_001)
    assert isinstance(critical_pods.victims(CRITICAL, [other], {"pods": 1}), Unreachable)
    assert critical_pods.victims(other, [CRITICAL], {"pods": 1}) == [CRITICAL]
