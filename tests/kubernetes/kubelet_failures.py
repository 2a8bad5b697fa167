# SPDX-License-Identifier: Apache-2.0
"""On real nodes: how pods fail with a real kubelet, and what both Job controllers make of it.

pytest does not collect this module: `python -m tests.kubernetes` runs it, with the
fixtures of `real_nodes.fixtures`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cases import cases
from tests.e2e.node_cluster import wait
from tests.kubernetes import joining
from tests.kubernetes.joining import Object, Place
from tests.kubernetes.real_nodes import images
from tests.kubernetes.real_nodes.cluster import RealCluster
from tests.kubernetes.real_nodes.fixtures import CONTROLLERS, SPARE, namespace

pytestmark = pytest.mark.timeout(600)

# Until the test creates the file `go`.
WAIT = "touch /host/$HOSTNAME; while [ ! -e /host/go ]; do sleep 0.2; done"

# Doubles a variable until the container has no memory left.
EAT_MEMORY = "a=0123456789abcdef; while :; do a=$a$a; done"

TAINT = "refloat.test/out"

IGNORE_DISRUPTIONS = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}


def on_exit(action: str, *codes: int) -> Object:
    return {"action": action, "onExitCodes": {"operator": "In", "values": list(codes)}}


@dataclass
class Failure:
    """A Job whose pod fails by itself, and how the Job then ends."""

    script: str
    rules: list[Object]
    ends: str
    """The reason of the Job's condition Failed."""
    container: Object = field(default_factory=dict)
    pod: Object = field(default_factory=dict)
    shows: Callable[[Object], object] = lambda _: True
    """What the pod must show."""


def reason(pod: Object) -> str:
    return str(pod["status"].get("reason", ""))


FAILURES = {
    "an exit code that a rule names": Failure(
        "exit 42",
        [on_exit("FailJob", 42)],
        "PodFailurePolicy",
        shows=lambda pod: joining.terminated(pod)["exitCode"] == 42,
    ),
    "an exit code that no rule names": Failure(
        "exit 1",
        [on_exit("FailJob", 42)],
        "BackoffLimitExceeded",
        shows=lambda pod: joining.terminated(pod)["reason"] == "Error",
    ),
    "no memory left": Failure(
        EAT_MEMORY,
        [on_exit("FailJob", 137)],
        "PodFailurePolicy",
        container={"resources": {"limits": {"memory": "20Mi"}}},
        shows=lambda pod: joining.terminated(pod)["reason"] == "OOMKilled",
    ),
    "a program that does not exist": Failure(
        "",
        [on_exit("FailJob", 128)],
        "PodFailurePolicy",
        container={"command": ["/no/such/program"]},
        shows=lambda pod: joining.terminated(pod)["reason"] == "StartError",
    ),
    "the pod's own deadline": Failure(
        "sleep 600",
        [IGNORE_DISRUPTIONS],  # its own fault: no disruption
        "BackoffLimitExceeded",
        pod={"activeDeadlineSeconds": 1, "terminationGracePeriodSeconds": 1},
        shows=lambda pod: reason(pod) == "DeadlineExceeded",
    ),
    "a volume that grew over its limit": Failure(
        "cat /bin/busybox /bin/busybox > /full/file; sleep 600",
        [IGNORE_DISRUPTIONS],
        "BackoffLimitExceeded",
        container={"volumeMounts": [{"name": "full", "mountPath": "/full"}]},
        pod={
            "volumes": [{"name": "full", "emptyDir": {"sizeLimit": "64Ki"}}],
            "terminationGracePeriodSeconds": 1,
        },
        shows=lambda pod: (
            reason(pod) == "Evicted" and not joining.condition(pod, "DisruptionTarget")
        ),
    ),
    "a liveness probe that fails": Failure(
        "sleep 600",
        [on_exit("FailJob", 137)],
        "PodFailurePolicy",
        container={
            "livenessProbe": {
                "exec": {"command": ["false"]},
                "periodSeconds": 1,
                "failureThreshold": 1,
            }
        },
        pod={"terminationGracePeriodSeconds": 1},
    ),
}


@pytest.fixture(scope="module")
def jobs(real: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The Jobs of all failures and of both controllers, which run at the same time."""
    with namespace(real, tmp_path_factory.mktemp("failures")) as place:
        for number, failure in enumerate(FAILURES.values()):
            for name, managed_by in CONTROLLERS.items():
                place.submit(
                    f"{name}-{number}",
                    failure.script,
                    managed_by=managed_by,
                    container={"image": images.WORK, **failure.container},
                    pod={"dnsPolicy": "Default", **failure.pod},
                    backoffLimit=0,
                    podFailurePolicy={"rules": failure.rules},
                )
        yield place


@pytest.mark.parametrize("number", range(len(FAILURES)), ids=list(FAILURES))
def test_both_controllers_end_the_job_alike(jobs: Place, number: int) -> None:
    failure = [*FAILURES.values()][number]
    for name in CONTROLLERS:
        job = f"{name}-{number}"
        status, end = jobs.over(job)
        (pod,) = jobs.pods_of(job)
        assert (end["type"], end["reason"], status["failed"]) == ("Failed", failure.ends, 1), end
        assert failure.shows(pod), pod["status"]


def evict_by_api(place: Place, pod: Object) -> None:
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    body = {"metadata": {"name": name, "namespace": namespace}}
    place.api.create(f"{place.pods}/{name}/eviction", body)


def taint_node(place: Place, pod: Object) -> None:
    node = pod["spec"]["nodeName"]
    place.kubectl("taint", "node", node, "--overwrite", f"{TAINT}=now:NoExecute")


def preempt(place: Place, pod: Object) -> None:
    """A pod of high priority asks for all CPU of the node."""
    node = place.api.get(f"/api/v1/nodes/{pod['spec']['nodeName']}")
    cpu = node["status"]["allocatable"]["cpu"]
    spec = place.template(
        "true",
        container={"image": images.WORK, "resources": {"requests": {"cpu": cpu}}},
        nodes=[node["metadata"]["name"]],
        priorityClassName="system-node-critical",
        dnsPolicy="Default",
    )
    meta = {"generateName": "greedy-"}
    place.api.create(place.pods, {"metadata": meta, "spec": spec})


@cases(
    "disrupt",
    {
        "eviction by the API": evict_by_api,
        "a taint with NoExecute": taint_node,
        "preemption by the scheduler": preempt,
    },
)
def test_both_controllers_ignore_a_disruption(
    place: Place, tmp_path: Path, disrupt: Callable[[Place, Object], None]
) -> None:
    """A failure that counts would end the Job, because its backoffLimit is 0."""
    for name, managed_by in CONTROLLERS.items():
        (tmp_path / name).mkdir()
        place.submit(
            name,
            WAIT,
            managed_by=managed_by,
            host=tmp_path / name,
            container={"image": images.WORK, "resources": {"requests": {"cpu": "100m"}}},
            pod={
                "affinity": joining.on([SPARE]),
                "dnsPolicy": "Default",
                "terminationGracePeriodSeconds": 1,
            },
            backoffLimit=0,
            podFailurePolicy={"rules": [IGNORE_DISRUPTIONS]},
        )
    pods = [running_pod(place, name, tmp_path) for name in CONTROLLERS]
    try:
        for pod in pods:
            disrupt(place, pod)
        for pod in pods:
            place.until_gone(f"{place.pods}/{pod['metadata']['name']}")
    finally:
        place.kubectl.run("taint", "node", SPARE, f"{TAINT}-")
    for name in CONTROLLERS:
        (tmp_path / name / "go").touch()
        status, end = place.over(name)
        assert (end["type"], status["succeeded"], status.get("failed", 0)) == ("Complete", 1, 0)
        starts = [each.name for each in (tmp_path / name).iterdir() if each.name != "go"]
        assert len(starts) == 2


def running_pod(place: Place, job: str, folder: Path) -> Object:
    wait(lambda: list((folder / job).iterdir()), f"no container of {job} runs")
    (pod,) = place.pods_of(job)
    return place.pod(pod["metadata"]["name"], "Running")
