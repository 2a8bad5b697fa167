# SPDX-License-Identifier: Apache-2.0
"""Containers with restartPolicyRules on a node (behaviour D2.1)."""

from typing import Any

import pytest

from refloat.sim.run import Sim
from tests.unit.agent import nodes
from tests.virtual import virtual


def ruled(*values: int, operator: str = "In", action: str = "Restart") -> dict[str, Any]:
    """A container that is not restarted, but for these codes."""
    rule = {"action": action, "exitCodes": {"operator": operator, "values": list(values)}}
    return nodes.container("main", restartPolicy="Never", restartPolicyRules=[rule])


ONCE = {"main": [{"exitCode": 42}, {"exitCode": 0}]}


@pytest.mark.parametrize(
    ("container", "want"),
    [
        pytest.param(ruled(42), ("Succeeded", 1), id="a code that a rule names"),
        pytest.param(ruled(1, 42), ("Succeeded", 1), id="one of several"),
        pytest.param(ruled(0, operator="NotIn"), ("Succeeded", 1), id="any other than a rule's"),
        pytest.param(ruled(41), ("Failed", 0), id="a code that no rule names"),
        pytest.param(
            ruled(42, action="RestartAllContainers"), ("Succeeded", 1), id="all are to restart"
        ),
    ],
)
def test_a_container_is_restarted_after_the_codes_of_its_rules(
    container: dict[str, Any], want: tuple[str, int]
) -> None:
    @virtual(seeds=3)
    async def check(sim: Sim) -> None:
        async with nodes.running(sim) as here:
            await here.create(nodes.pod(script=ONCE, spec={"containers": [container]}))
            await here.after(30)
            status = await here.status()
            (only,) = status["containerStatuses"]
            assert (status["phase"], only["restartCount"]) == want

    check()


@virtual(seeds=3)
async def test_an_init_container_is_restarted_by_its_rules(sim: Sim) -> None:
    init = {**ruled(42), "name": "a"}
    async with nodes.running(sim) as here:
        await here.create(nodes.pod(script={"a": ONCE["main"]}, spec={"initContainers": [init]}))
        await here.after(30)
        status = await here.status()
        assert status["phase"] == "Succeeded"
        assert status["initContainerStatuses"][0]["restartCount"] == 1
        assert "Failed" not in here.phases()
