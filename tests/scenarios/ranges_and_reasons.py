# SPDX-License-Identifier: Apache-2.0
"""backoffPolicy: where Refloat's controller has it in an annotation, all others the same otherwise.

Kubernetes has no such policy. Its equivalent is a podFailurePolicy, and
what that can say too must end alike.
"""

import json
from typing import Any

from refloat.api.meta import Object
from refloat.client.contract import DeleteOptions
from refloat.policy.job import backoff_annotation, policy_conversion
from refloat.scenario.namespace import ScenarioNamespace
from tests.scenarios.scenario import (
    BACKOFF_LIMIT,
    FOREVER,
    REACHED,
    ends,
    in_turn,
    over,
    policy,
    scenario,
)

BUGS = {"action": "Terminate", "containerExitCodeNotIn": "40-50"}
DISRUPTIONS = {"action": "Ignore", "podStatusReasonNotIn": [""]}


async def submit(ns: ScenarioNamespace, *rules: Object, **more: Any) -> None:
    failure_policy = policy(*rules)
    if ns.cluster.managed_by:
        text = json.dumps(failure_policy)
        await ns.submit(own_annotations={backoff_annotation.ANNOTATION: text}, **more)
    else:
        converted = policy_conversion.to_pod_failure_policy(failure_policy).policy
        await ns.submit(podFailurePolicy=converted, **more)


@scenario
async def ranges_end_a_job_by_any_other_code(ns: ScenarioNamespace) -> None:
    """behaviour A15.4, A15.7, A18; the older KEP-3329, story 1"""
    await submit(ns, BUGS, backoffLimit=3, simulate={"main": in_turn(45, 39)})
    status = await ns.finished()
    failure = ns.condition("Failed")
    assert failure is not None
    assert failure["reason"] in ("BackoffPolicy", "PodFailurePolicy")
    assert " failed with exit code 39 matching " in failure["message"]
    assert failure["message"].endswith(" rule at index 0")
    assert status["failed"] == 2


@scenario
async def ranges_let_known_codes_count(ns: ScenarioNamespace) -> None:
    """behaviour A12.1, A15.6; the older KEP-3329, story 1"""
    await submit(ns, BUGS, backoffLimit=1, simulate={"main": in_turn(40, 50)})
    await over(ns, "Failed", BACKOFF_LIMIT, failed=2)


@scenario
async def reasons_of_disruptions_do_not_count(ns: ScenarioNamespace) -> None:
    """behaviour A15.6, F; the older KEP-3329, story 2, on a cluster that writes no reasons"""
    await submit(ns, DISRUPTIONS, backoffLimit=0, simulate={"main": [FOREVER, ends()]})
    (pod,) = await ns.runs(1)
    await ns.evict(pod)
    await over(ns, "Complete", REACHED, succeeded=1, failed=0)


@scenario
async def reasons_that_nobody_gave_count(ns: ScenarioNamespace) -> None:
    """behaviour A15.6, F.1; the older KEP-3329, story 2: a plain delete is no disruption"""
    await submit(ns, DISRUPTIONS, backoffLimit=0, simulate={"main": FOREVER})
    (pod,) = await ns.runs(1)
    await ns.delete_pod(pod, DeleteOptions())
    await over(ns, "Failed", BACKOFF_LIMIT, failed=1)
