# SPDX-License-Identifier: Apache-2.0
"""On a cluster: a backoffPolicy in an annotation, and reasons that Kubernetes has no place for.

What both kinds of policies can say is compared in `tests/scenarios`. Not one of
the modules that pytest finds by itself: it needs the cluster that
`python -m tests.kubernetes` starts.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.e2e import cluster
from tests.e2e.cluster import Api, Object
from tests.kubernetes.manager_rights import JOBS, PATIENCE_SECONDS, PODS, job, status

EVENTS = "/api/v1/namespaces/default/events"

POLICY = "refloat.dev/backoff-policy"

RIGHT = "rules: [{action: Ignore, podStatusReasonIn: [Maintenance]}]"
WRONG = "rules: [{action: Ignore, containerExitCodeIn: 9-1}]"

# The first pod runs until it is deleted, the next one ends well.
TWICE = '{"main": [{"seconds": null}, {"seconds": 0.5}]}'

T = TypeVar("T")


@pytest.fixture(scope="module")
def kubeconfig() -> Path:
    return Path(os.environ["REFLOAT_TEST_KUBECONFIG"])


@pytest.fixture(scope="module")
def api(kubeconfig: Path) -> Iterator[Api]:
    found = Api(kubeconfig)
    yield found
    for name in ("wrong-policy", "maintained"):
        found.ask("DELETE", f"{JOBS}/{name}?propagationPolicy=Background")


def annotated(name: str, policy: str, **more: Any) -> Object:
    made = job(name, **more)
    made["metadata"]["annotations"] = {POLICY: policy}
    return made


def until(look: Callable[[], T], what: str) -> T:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := look()):
        assert time.monotonic() < deadline, what
        time.sleep(0.1)
    return found


def pods(api: Api, name: str) -> list[Object]:
    found: list[Object] = api.get(f"{PODS}?labelSelector=job-name={name}")["items"]
    return found


def told(api: Api, name: str, reason: str) -> list[str]:
    query = f"fieldSelector=involvedObject.name={name},reason={reason}"
    return [each["message"] for each in api.get(f"{EVENTS}?{query}")["items"]]


def test_nothing_starts_while_the_annotation_is_wrong(api: Api) -> None:
    api.create(JOBS, annotated("wrong-policy", WRONG))
    notes = until(lambda: told(api, "wrong-policy", "InvalidBackoffPolicy"), "no event")
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
    (first,) = until(lambda: running(api, "maintained"), "no pod runs")
    name = first["metadata"]["name"]
    done = cluster.run("delete", "pod", name, "--reason", "Maintenance", "--kubeconfig", kubeconfig)
    assert (done.returncode, done.stdout) == (0, f"pod {name} deleted: Maintenance\n")
    status(api, "maintained", "completionTime")
    ended = api.get(f"{JOBS}/maintained")
    assert ended["status"].get("failed", 0) == 0
    assert f'"pod":"{name}"' in ended["metadata"]["annotations"]["refloat.dev/attempts"]
    assert '"reason":"Maintenance"' in ended["metadata"]["annotations"]["refloat.dev/attempts"]


def running(api: Api, name: str) -> list[Object]:
    return [each for each in pods(api, name) if each["status"].get("phase") == "Running"]
