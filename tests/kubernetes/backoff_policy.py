# SPDX-License-Identifier: Apache-2.0
"""On a cluster: a backoffPolicy in an annotation, and reasons that Kubernetes has no place for.

What both kinds of policies can express is compared in `tests/scenarios`. pytest
does not collect this module: `python -m tests.kubernetes` starts the cluster and runs it.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import cluster
from tests.e2e.cluster import Api, Object
from tests.e2e.node_cluster import wait
from tests.kubernetes.manager_rights import JOBS, PODS, managed_job, status

EVENTS = "/api/v1/namespaces/default/events"

POLICY = "refloat.dev/backoff-policy"

RIGHT = "rules: [{action: Ignore, podStatusReasonIn: [Maintenance]}]"
WRONG = "rules: [{action: Ignore, containerExitCodeIn: 9-1}]"

# The first pod runs until its deletion, the next one succeeds.
TWICE = '{"main": [{"seconds": null}, {"seconds": 0.5}]}'


@pytest.fixture(scope="module")
def kubeconfig() -> Path:
    return Path(os.environ["REFLOAT_TEST_KUBECONFIG"])


@pytest.fixture(scope="module")
def api(kubeconfig: Path) -> Iterator[Api]:
    api = Api(kubeconfig)
    yield api
    for name in ("wrong-policy", "maintained"):
        api.ask("DELETE", f"{JOBS}/{name}?propagationPolicy=Background")


def annotated(name: str, policy: str, **more: Any) -> Object:
    manifest = managed_job(name, **more)
    manifest["metadata"]["annotations"] = {POLICY: policy}
    return manifest


def pods(api: Api, name: str) -> list[Object]:
    items: list[Object] = api.get(f"{PODS}?labelSelector=job-name={name}")["items"]
    return items


def messages(api: Api, name: str, reason: str) -> list[str]:
    query = f"fieldSelector=involvedObject.name={name},reason={reason}"
    return [each["message"] for each in api.get(f"{EVENTS}?{query}")["items"]]


def test_nothing_starts_while_the_annotation_is_wrong(api: Api) -> None:
    api.create(JOBS, annotated("wrong-policy", WRONG))
    notes = wait(lambda: messages(api, "wrong-policy", "InvalidBackoffPolicy"), "no event")
    assert notes == [
        (
            "Skipped Job sync because its backoff policy is wrong: "
            f"metadata.annotations[{POLICY}].rules[0].containerExitCodeIn: "
            'Invalid value: "9-1": the range "9-1" ends before it begins'
        )
    ]
    assert pods(api, "wrong-policy") == []
    api.patch(f"{JOBS}/wrong-policy", {"metadata": {"annotations": {POLICY: RIGHT}}})
    status(api, "wrong-policy", "completionTime")


def test_a_delete_says_why_in_an_annotation(api: Api, kubeconfig: Path) -> None:
    api.create(JOBS, annotated("maintained", RIGHT, life=TWICE, backoffLimit=0))
    (first,) = wait(lambda: running(api, "maintained"), "no pod runs")
    name = first["metadata"]["name"]
    done = cluster.run("delete", "pod", name, "--reason", "Maintenance", "--kubeconfig", kubeconfig)
    assert (done.returncode, done.stdout) == (0, f"pod {name} deleted: Maintenance\n")
    status(api, "maintained", "completionTime")
    current = api.get(f"{JOBS}/maintained")
    assert current["status"].get("failed", 0) == 0
    assert f'"pod":"{name}"' in current["metadata"]["annotations"]["refloat.dev/attempts"]
    assert '"reason":"Maintenance"' in current["metadata"]["annotations"]["refloat.dev/attempts"]


def running(api: Api, name: str) -> list[Object]:
    return [each for each in pods(api, name) if each["status"].get("phase") == "Running"]
