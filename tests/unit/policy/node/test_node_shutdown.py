# SPDX-License-Identifier: Apache-2.0
"""Who ends when a node shuts down (behaviour D6.4)."""

from refloat.policy.node import node_shutdown
from refloat.policy.node.node_shutdown import Period, ShutdownSettings
from tests.cases import cases
from tests.unit.policy.scheduling import objects

CRITICAL = 2_000_000_000
THREE = ShutdownSettings(by_priority=(Period(100, 3), Period(0, 1), Period(10, 2)))


def groups(settings: ShutdownSettings, *priorities: int) -> list[tuple[int, list[int | None]]]:
    pods = [objects.pod(f"p{each}", priority=each) for each in priorities]
    groups = node_shutdown.groups(settings, pods)
    return [(each.seconds, [pod.spec.priority for pod in each.pods]) for each in groups]


@cases(
    "settings priorities want",
    {
        "all others, then the critical ones": (
            ShutdownSettings(30, 10),
            (CRITICAL, 0, 500),
            [(20, [0, 500]), (10, [CRITICAL])],
        ),
        "none waits": (ShutdownSettings(30, 10), (CRITICAL,), [(10, [CRITICAL])]),
        "below the lowest": (ShutdownSettings(30, 10), (-5,), [(20, [-5])]),
        "the lower one between two": (THREE, (9, 10, 11), [(1, [9]), (2, [10, 11])]),
        "above the highest": (THREE, (5000,), [(3, [5000])]),
        "switched off, as a kubelet's default": (ShutdownSettings(0, 0), (0,), []),
        "a part that is more than the whole": (ShutdownSettings(10, 20), (0,), []),
    },
)
def test_groups(
    settings: ShutdownSettings, priorities: tuple[int, ...], want: list[tuple[int, list[int]]]
) -> None:
    assert groups(settings, *priorities) == want


@cases(
    "own want",
    {
        "its own, if that is less": (5, 5),
        "the group's": (60, 20),
        "the group's, if it has none": (None, 20),
    },
)
def test_the_grace_of_a_pod(own: int | None, want: int) -> None:
    pod = objects.pod(terminationGracePeriodSeconds=own)
    (group,) = node_shutdown.groups(ShutdownSettings(30, 10), [pod])
    assert group.grace(pod) == want
