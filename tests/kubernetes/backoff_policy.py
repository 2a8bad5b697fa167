# SPDX-License-Identifier: Apache-2.0
"""On a cluster: a backoffPolicy in an annotation, and reasons that Kubernetes has no place for.

What both kinds of policies can express is compared in `tests/scenarios`. pytest
does not collect this module: `python -m tests.kubernetes` starts the cluster and runs it.
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from refloat.base.clock import RealClock
from refloat.base.rand import Rand
from refloat.policy.job import attempts, backoff_annotation
from refloat.scenario.cluster import JOBS, connected
from refloat.scenario.namespace import JOB, ScenarioNamespace, opened
from tests.e2e import cluster
from tests.scenarios.scenario import FOREVER, ends
from tests.scenarios.setting import OURS

RIGHT = "rules: [{action: Ignore, podStatusReasonIn: [Maintenance]}]"
WRONG = "rules: [{action: Ignore, containerExitCodeIn: 9-1}]"


@pytest.fixture
def kubeconfig() -> Path:
    return Path(os.environ["REFLOAT_TEST_KUBECONFIG"])


@pytest.fixture
async def ns(kubeconfig: Path) -> AsyncIterator[ScenarioNamespace]:
    on = connected(kubeconfig, RealClock(), Rand(), managed_by=OURS, needs_account=True)
    async with on as shared, opened(shared, "backoff") as ns:
        yield ns


async def submit(ns: ScenarioNamespace, policy: str, **more: Any) -> None:
    await ns.submit(own_annotations={backoff_annotation.ANNOTATION: policy}, **more)


async def test_nothing_starts_while_the_annotation_is_wrong(ns: ScenarioNamespace) -> None:
    await submit(ns, WRONG)
    event = await ns.event("InvalidBackoffPolicy")
    name = backoff_annotation.ANNOTATION
    assert event["note"] == (
        "Skipped Job sync because its backoff policy is wrong: "
        f"metadata.annotations[{name}].rules[0].containerExitCodeIn: "
        'Invalid value: "9-1": the range "9-1" ends before it begins'
    )
    assert not ns.pods
    change = {"metadata": {"annotations": {name: RIGHT}}}
    await ns.client.patch(JOBS, JOB, change, namespace=ns.name)
    await ns.finished()
    assert ns.condition("Complete")


async def test_a_delete_says_why_in_an_annotation(ns: ScenarioNamespace, kubeconfig: Path) -> None:
    await submit(ns, RIGHT, simulate={"main": [FOREVER, ends()]}, backoffLimit=0)
    (first,) = await ns.runs(1)
    name = first["metadata"]["name"]
    where = ("--namespace", ns.name, "--kubeconfig", kubeconfig)
    done = cluster.run("delete", "pod", name, "--reason", "Maintenance", *where)
    assert (done.returncode, done.stdout) == (0, f"pod {name} deleted: Maintenance\n")
    assert (await ns.finished()).get("failed", 0) == 0
    assert ns.condition("Complete")
    (attempt,) = attempts.recorded(ns.jobs[JOB]["metadata"]["annotations"])
    assert (attempt["pod"], attempt["reason"]) == (name, "Maintenance")
