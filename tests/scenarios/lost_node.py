# SPDX-License-Identifier: Apache-2.0
"""Jobs on nodes that fall silent, for clusters whose nodes a test can make fail.

The cluster frees pods that opted in. A Kubernetes of its own has no such nodes, so
these are not among the scenarios of `scenario.every`.
"""

from refloat.api import conditions
from refloat.policy.recovery import zombie
from refloat.scenario.namespace import ScenarioNamespace
from tests.scenarios.scenario import FOREVER, ends, has

TOLERATION = {
    "key": "node.kubernetes.io/unreachable",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 1,
}


async def a_job_goes_on_after_its_node_froze(ns: ScenarioNamespace) -> None:
    """KEP-6757: the pod is freed, and the next one never runs beside it."""
    await ns.submit(
        simulate={"main": [FOREVER, ends(seconds=1)]},
        template={"terminationGracePeriodSeconds": 1, "tolerations": [TOLERATION]},
        annotations={zombie.ANNOTATIONS[0]: "true"},
        podReplacementPolicy="Failed",
    )
    (pod,) = await ns.runs(1)
    assert ns.cluster.faults is not None
    ns.cluster.faults.fail(pod["spec"]["nodeName"], "freeze")
    has(await ns.finished(), failed=1, succeeded=1)
    assert ns.condition("Complete")
    first, second = ns.pods.values()
    assert conditions.of(first)[-1]["type"] == zombie.CONDITION
    assert second["spec"]["nodeName"] != first["spec"]["nodeName"]
    assert ns.most_at_once() == 1
