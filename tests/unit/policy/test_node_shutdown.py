# SPDX-License-Identifier: Apache-2.0
"""Who ends when a node shuts down (behaviour D6.4)."""

import pytest

from refloat.policy import node_shutdown
from refloat.policy.node_shutdown import Period, ShutdownSettings
from tests.unit.policy import scheduling

CRITICAL = 2_000_000_000
THREE = ShutdownSettings(by_priority=(Period(100, 3), Period(0, 1), Period(10, 2)))


def groups(settings: ShutdownSettings, *priorities: int) -> list[tuple[int, list[int | None]]]:
    pods = [scheduling.pod(f"p{each}", priority=each) for each in priorities]
    found = node_shutdown.groups(settings, pods)
    return [(each.seconds, [pod.spec.priority for pod in each.pods]) for each in found]


@pytest.mark.parametrize(
    ("settings", "priorities", "want"),
    [
        pytest.param(
            ShutdownSettings(30, 10),
            (CRITICAL, 0, 500),
            [(20, [0, 500]), (10, [CRITICAL])],
            id="all others, then the critical ones",
        ),
        pytest.param(ShutdownSettings(30, 10), (CRITICAL,), [(10, [CRITICAL])], id="none waits"),
        pytest.param(ShutdownSettings(30, 10), (-5,), [(20, [-5])], id="below the lowest"),
        pytest.param(THREE, (9, 10, 11), [(1, [9]), (2, [10, 11])], id="the lower one between two"),
        pytest.param(THREE, (5000,), [(3, [5000])], id="above the highest"),
        pytest.param(ShutdownSettings(0, 0), (0,), [], id="switched off, as a kubelet's default"),
        pytest.param(ShutdownSettings(10, 20), (0,), [], id="a part that is more than the whole"),
    ],
)
def test_groups(
    settings: ShutdownSettings, priorities: tuple[int, ...], want: list[tuple[int, list[int]]]
) -> None:
    assert groups(settings, *priorities) == want


@pytest.mark.parametrize(
    ("own", "want"),
    [
        pytest.param(5, 5, id="its own, if that is less"),
        pytest.param(60, 20, id="the group's"),
        pytest.param(None, 20, id="the group's, if it has none"),
    ],
)
def test_the_grace_of_a_pod(own: int | None, want: int) -> None:
    pod = scheduling.pod(terminationGracePeriodSeconds=own)
    (group,) = node_shutdown.groups(ShutdownSettings(30, 10), [pod])
    assert group.grace(pod) == want
