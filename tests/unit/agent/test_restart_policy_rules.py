# SPDX-License-Identifier: Apache-2.0
"""Containers with restartPolicyRules on a node (behaviour D2.1)."""

from typing import Any

from tests.cases import cases
from tests.unit.agent import nodes
from tests.unit.agent.nodes import Nodes, on_nodes


def ruled(*values: int, operator: str = "In", action: str = "Restart") -> dict[str, Any]:
    """A container that is not restarted, but for these codes."""
    rule = {"action": action, "exitCodes": {"operator": operator, "values": list(values)}}
    return nodes.container("main", restartPolicy="Never", restartPolicyRules=[rule])


ONCE = {"main": [{"exitCode": 42}, {"exitCode": 0}]}


@cases(
    "container want",
    {
        "a code that a rule names": (ruled(42), ("Succeeded", 1)),
        "one of several": (ruled(1, 42), ("Succeeded", 1)),
        "any other than a rule's": (ruled(0, operator="NotIn"), ("Succeeded", 1)),
        "a code that no rule names": (ruled(41), ("Failed", 0)),
        "all are to restart": (ruled(42, action="RestartAllContainers"), ("Succeeded", 1)),
    },
)
@on_nodes(seeds=3)
async def test_a_container_is_restarted_after_the_codes_of_its_rules(
    here: Nodes, container: dict[str, Any], want: tuple[str, int]
) -> None:
    await here.create(nodes.pod(script=ONCE, spec={"containers": [container]}))
    await here.after(30)
    status = await here.status()
    (only,) = status["containerStatuses"]
    assert (status["phase"], only["restartCount"]) == want


@on_nodes(seeds=3)
async def test_an_init_container_is_restarted_by_its_rules(here: Nodes) -> None:
    init = {**ruled(42), "name": "a"}
    await here.create(nodes.pod(script={"a": ONCE["main"]}, spec={"initContainers": [init]}))
    await here.after(30)
    status = await here.status()
    assert status["phase"] == "Succeeded"
    assert status["initContainerStatuses"][0]["restartCount"] == 1
    assert "Failed" not in here.phases()
