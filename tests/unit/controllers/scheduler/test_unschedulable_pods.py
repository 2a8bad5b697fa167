# SPDX-License-Identifier: Apache-2.0
"""Who waits for what, and who is first."""

from refloat.controllers.scheduler.unschedulable_pods import UnschedulablePods
from refloat.policy.scheduling.demand import Demands
from tests.unit.policy.scheduling.objects import pod


def test_pods_that_ask_the_same_stand_in_one_line_however_many_demands_came_between() -> None:
    demands, unschedulable = Demands(), UnschedulablePods()
    unschedulable.wait("a", demands.of(pod("a", cpu="1")), nominated=False)
    for number in range(5000):
        demands.of(pod(nodeSelector={"a": str(number)}))
    demand = demands.of(pod("b", cpu="1"))
    unschedulable.wait("b", demand, nominated=False)
    assert unschedulable.first(demand) == "a"
    unschedulable.leave("a")
    assert unschedulable.first(demand) == "b"
