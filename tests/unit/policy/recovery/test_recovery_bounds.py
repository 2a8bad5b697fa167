# SPDX-License-Identifier: Apache-2.0
"""How many unreachable nodes hold all force."""

from refloat.policy.recovery import recovery_bounds
from tests.cases import cases


@cases(
    "unreachable nodes above want",
    {
        "no nodes": (0, 0, 55, False),
        "two are few, and all": (2, 2, 55, False),
        "60 %": (3, 5, 55, True),
        "exactly 55 % is not above": (11, 20, 55, False),
        "one more is": (12, 20, 55, True),
        "100 % never holds": (100, 100, 100, False),
        "0 % holds from the third on": (3, 1000, 0, True),
    },
)
def test_holds_above_a_part_of_the_nodes(
    unreachable: int, nodes: int, above: int, want: bool
) -> None:
    assert recovery_bounds.holds(unreachable, nodes, above) is want
