# SPDX-License-Identifier: Apache-2.0
"""Who waits for what, and who is first."""

from refloat.controllers.scheduler.backlog import Backlog
from refloat.policy.demand import Demands
from tests.unit.policy.scheduling import pod


def test_pods_that_ask_the_same_stand_in_one_line_however_many_demands_came_between() -> None:
    demands, backlog = Demands(), Backlog()
    backlog.wait("a", demands.of(pod("a", cpu="1")), promised=False)
    for number in range(5000):
        demands.of(pod(nodeSelector={"a": str(number)}))
    demand = demands.of(pod("b", cpu="1"))
    backlog.wait("b", demand, promised=False)
    assert backlog.first(demand) == "a"
    backlog.leave("a")
    assert backlog.first(demand) == "b"
