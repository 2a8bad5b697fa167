# SPDX-License-Identifier: Apache-2.0
"""A whole cluster with simulated nodes, by kubectl: what disrupts pods, and what becomes of them.

Each test follows the pods with `kubectl get pods -w` and holds the lines
against what Kubernetes writes (behaviour F). The server runs with `--fast`:
what takes Kubernetes minutes takes seconds here.
"""

import contextlib
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import builders
from tests.e2e import cluster
from tests.e2e.cluster import PATIENCE_SECONDS, Kubectl, Object, PipeLines, ServerProcess

NODES = 20

# Runs until SIGTERM, and takes a second to end.
SCRIPT = json.dumps({"main": {"seconds": None, "stopSeconds": 1}})

ON_DISRUPTION = [{"type": "DisruptionTarget"}]
IGNORE = {"rules": [{"action": "Ignore", "onPodConditions": ON_DISRUPTION}]}
FAIL_JOB = {"rules": [{"action": "FailJob", "onPodConditions": ON_DISRUPTION}]}

_TARGET = '.object.status.conditions[?(@.type=="DisruptionTarget")]'
_COLUMNS = ",".join(
    (
        "EVENT:.type",
        "NAME:.object.metadata.name",
        "PHASE:.object.status.phase",
        "GRACE:.object.metadata.deletionGracePeriodSeconds",
        f"REASON:{_TARGET}.reason",
        f"MESSAGE:{_TARGET}.message",
    )
)
WATCH = ("get", "pods", "-w", "--output-watch-events", "--no-headers", "-o")


class PodLine(NamedTuple):
    """A line of `kubectl get pods -w`."""

    event: str
    name: str
    phase: str
    grace: str = "<none>"
    reason: str = "<none>"
    message: str = "<none>"


class PodWatch:
    """The lines that a kubectl prints, one pod at a time."""

    def __init__(self, lines: PipeLines) -> None:
        self._lines = lines
        self.seen: list[PodLine] = []

    def until(self, event: str = "", **want: str) -> PodLine:
        """Read on to the first line like this."""
        for line in self._rest():
            fields = line._asdict()
            if event in ("", line.event) and all(fields[k] == v for k, v in want.items()):
                return line
        raise AssertionError(f"the watch ended before {event} {want}: {self.seen}")

    def gone(self, name: str) -> None:
        """Read on until the pod is deleted, unless that was read already."""
        if ("DELETED", name) not in [(line.event, line.name) for line in self.seen]:
            self.until("DELETED", name=name)

    def made(self, prefix: str) -> str:
        """The name of a new pod with this prefix; reads on to that pod if needed."""
        while True:
            for line in self.seen:
                if line.event == "ADDED" and line.name.startswith(prefix):
                    return line.name
            self.until("ADDED")

    def _rest(self) -> Iterator[PodLine]:
        while text := self._lines.next():
            self.seen.append(PodLine(*re.split(r"\s{2,}", text.strip())))
            yield self.seen[-1]

    def of(self, name: str) -> list[tuple[str, ...]]:
        """The lines of a pod after the start: event, phase, grace, reason; each once."""
        lines = [(line.event, line.phase, line.grace, line.reason) for line in self._about(name)]
        return list(dict.fromkeys(lines))

    def messages(self, name: str) -> set[str]:
        return {line.message for line in self._about(name)} - {"<none>"}

    def _about(self, name: str) -> list[PodLine]:
        return [line for line in self.seen if line.name == name]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A cluster whose nodes are all ready."""
    folder = tmp_path_factory.mktemp("nodes") / "data"
    flags = ("--simulated-nodes", str(NODES), "--fast")
    with cluster.serving(folder, *flags) as server:
        api = cluster.Api(server.kubeconfig)
        with api.watch("/api/v1/nodes") as stream:
            ready: set[str] = set()
            while len(ready) < NODES:
                _, node = stream.next()
                if is_ready(node):
                    ready.add(node["metadata"]["name"])
        yield server
        assert server.end() == 0


def is_ready(node: Object) -> bool:
    conditions = node["status"].get("conditions", [])
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)


@pytest.fixture
def kubectl(server: ServerProcess, home: Path, request: pytest.FixtureRequest) -> Kubectl:
    """With a separate namespace."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name)[:60].strip("-")
    kubectl = Kubectl(server.kubeconfig, home, name)
    kubectl("create", "namespace", name)
    return kubectl


def submit(
    kubectl: Kubectl, name: str = "work", *, pod: Object | None = None, **spec: object
) -> str:
    """Create a Job; the name of the running pod."""
    job = builders.job(name, spec=spec)
    template = job["spec"]["template"]
    template["metadata"] = {"annotations": {"refloat.dev/simulate": SCRIPT}}
    template["spec"].update(pod or {})
    kubectl("create", "-f", "-", stdin=job)
    kubectl("wait", f"job/{name}", "--for=jsonpath={.status.ready}=1", "--timeout=30s")
    return kubectl("get", "pods", "-l", f"job-name={name}", "-o", "name").strip()[len("pod/") :]


def node_of(kubectl: Kubectl, pod: str) -> str:
    return kubectl("get", "pod", pod, "-o", "jsonpath={.spec.nodeName}")


def job_status(kubectl: Kubectl, name: str = "work") -> Object:
    status: Object = kubectl.object("get", "job", name)["status"]
    return status


@contextlib.contextmanager
def followed(kubectl: Kubectl) -> Iterator[PodWatch]:
    """The lines after those of the initial state."""
    with kubectl.started(*WATCH, f"custom-columns={_COLUMNS}") as lines:
        watch = PodWatch(lines)
        watch.until("ADDED", phase="Running")
        watch.seen.clear()
        yield watch


def ended(reason: str, *, grace: str = "30") -> list[tuple[str, ...]]:
    """Marked, then deleted, then failed, then gone (behaviour F.4)."""
    return [
        ("MODIFIED", "Running", "<none>", reason),
        ("MODIFIED", "Running", grace, reason),
        ("MODIFIED", "Failed", grace, reason),
        ("MODIFIED", "Failed", "0", reason),
        ("DELETED", "Failed", "0", reason),
    ]


def test_drain_evicts_and_an_ignoring_policy_forgives(kubectl: Kubectl) -> None:
    pod = submit(kubectl, podFailurePolicy=IGNORE, backoffLimit=0)
    node = node_of(kubectl, pod)
    with followed(kubectl) as watch:
        output = kubectl("drain", node, "--force")
        assert f"pod/{pod} evicted" in output
        assert f"node/{node} drained" in output
        again = watch.until("MODIFIED", phase="Running", reason="<none>").name
        watch.gone(pod)
    assert watch.of(pod) == ended("EvictionByEvictionAPI")
    assert watch.messages(pod) == {"Eviction API: evicting"}
    assert node_of(kubectl, again) != node
    status = job_status(kubectl)
    assert status.get("failed", 0) == 0
    assert "conditions" not in status
    kubectl("uncordon", node)


def test_a_taint_evicts_and_a_strict_policy_fails_the_job(kubectl: Kubectl) -> None:
    pod = submit(kubectl, podFailurePolicy=FAIL_JOB)
    node = node_of(kubectl, pod)
    with followed(kubectl) as watch:
        kubectl("taint", "node", node, "example.com/broken=yes:NoExecute")
        watch.gone(pod)
    assert watch.of(pod) == ended("DeletionByTaintManager")
    assert watch.messages(pod) == {"Taint manager: deleting due to NoExecute taint"}
    kubectl("wait", "job/work", "--for=condition=Failed", "--timeout=30s")
    failed = next(each for each in job_status(kubectl)["conditions"] if each["type"] == "Failed")
    assert failed["reason"] == "PodFailurePolicy"
    match = "has condition DisruptionTarget matching FailJob rule at index 0"
    assert failed["message"] == f"Pod {kubectl.namespace}/{pod} {match}"
    kubectl("taint", "node", node, "example.com/broken-")


def test_a_tolerated_taint_evicts_nobody(kubectl: Kubectl) -> None:
    tolerations = [{"key": "example.com/broken", "operator": "Exists"}]
    pod = submit(kubectl, pod={"tolerations": tolerations})
    node = node_of(kubectl, pod)
    kubectl("taint", "node", node, "example.com/broken=yes:NoExecute")
    intolerant = submit(kubectl, "other")
    assert node_of(kubectl, intolerant) != node
    assert kubectl("get", "pod", pod, "--no-headers").split()[2] == "Running"
    kubectl("taint", "node", node, "example.com/broken-")


def test_a_higher_priority_takes_the_place_of_a_lower(kubectl: Kubectl) -> None:
    value = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
    kubectl("create", "-f", "-", stdin={**value, "metadata": {"name": "urgent"}})
    container = {**builders.CONTAINER, "resources": {"requests": {"cpu": "8"}}}
    whole = {"containers": [container], "nodeSelector": {"kubernetes.io/hostname": "node-0"}}
    low = submit(kubectl, "low", pod=whole, podFailurePolicy=IGNORE)
    with followed(kubectl) as watch:
        high = submit(kubectl, "high", pod={**whole, "priorityClassName": "urgent"})
        watch.gone(low)
        again = watch.made("low-")
    assert watch.of(low) == ended("PreemptionByScheduler")
    assert watch.messages(low) == {
        "default-scheduler: preempting to accommodate a higher priority pod"
    }
    assert node_of(kubectl, high) == "node-0"
    assert node_of(kubectl, again) == ""
    assert job_status(kubectl, "low").get("failed", 0) == 0


def test_a_deleted_node_takes_its_pods_along(kubectl: Kubectl) -> None:
    pod = submit(kubectl, podReplacementPolicy="Failed")
    node = node_of(kubectl, pod)
    with followed(kubectl) as watch:
        kubectl("delete", "node", node)
        watch.gone(pod)
        watch.until("MODIFIED", phase="Running", reason="<none>")
    assert watch.of(pod) == [
        ("MODIFIED", "Failed", "<none>", "DeletionByPodGC"),
        ("MODIFIED", "Failed", "0", "DeletionByPodGC"),
        ("DELETED", "Failed", "0", "DeletionByPodGC"),
    ]
    assert watch.messages(pod) == {"PodGC: node no longer exists"}
    assert job_status(kubectl)["failed"] == 1


def test_a_frozen_node_keeps_its_pod_terminating_until_it_is_back(
    kubectl: Kubectl, server: ServerProcess
) -> None:
    toleration = {
        "key": "node.kubernetes.io/unreachable",
        "operator": "Exists",
        "effect": "NoExecute",
    }
    pod = submit(
        kubectl,
        pod={"tolerations": [{**toleration, "tolerationSeconds": 1}]},
        podReplacementPolicy="Failed",
    )
    node = node_of(kubectl, pod)
    with followed(kubectl) as watch:
        output = cluster.run("node", "freeze", node, "--data-dir", server.data_dir)
        assert output.stdout == f"node {node} is silent: its agent does nothing, its pods run on\n"
        watch.until("MODIFIED", name=pod, grace="30")
        kubectl("wait", "job/work", "--for=jsonpath={.status.terminating}=1", "--timeout=30s")
        assert kubectl("get", "node", node, "--no-headers").split()[1] == "NotReady"
        assert kubectl("get", "pods", "--no-headers").split()[2] == "Terminating"
        status = job_status(kubectl)
        assert (status.get("active", 0), status.get("failed", 0)) == (0, 0)

        output = cluster.run("node", "heal", node, "--data-dir", server.data_dir)
        assert output.stdout == f"node {node} is back\n"
        watch.gone(pod)
        watch.until("MODIFIED", phase="Running", reason="<none>")
    assert watch.of(pod)[-4:] == ended("DeletionByTaintManager")[-4:]
    assert job_status(kubectl)["failed"] == 1


def until_gone(kubectl: Kubectl, *what: str) -> None:
    kubectl("wait", *what, "--for=delete", f"--timeout={PATIENCE_SECONDS:.0f}s")


@pytest.mark.parametrize("cascade", ["background", "foreground"])
def test_a_job_is_deleted_with_its_pods(kubectl: Kubectl, cascade: str) -> None:
    pod = submit(kubectl)
    with followed(kubectl) as watch:
        kubectl("delete", "job", "work", f"--cascade={cascade}")
        watch.gone(pod)
    assert watch.of(pod) == [
        ("MODIFIED", "Running", "30", "<none>"),
        ("MODIFIED", "Failed", "30", "<none>"),
        ("MODIFIED", "Failed", "0", "<none>"),
        ("DELETED", "Failed", "0", "<none>"),
    ]
    until_gone(kubectl, "job/work")


def test_a_foreground_deletion_keeps_the_job_until_its_pods_are_gone(kubectl: Kubectl) -> None:
    pod = submit(kubectl)
    kubectl(
        "patch", "pod", pod, "--type=merge", "-p", '{"metadata":{"finalizers":["example.com/x"]}}'
    )
    kubectl("delete", "job", "work", "--cascade=foreground", "--wait=false")
    kubectl("wait", f"pod/{pod}", "--for=jsonpath={.status.phase}=Failed", "--timeout=30s")
    assert kubectl.object("get", "job", "work")["metadata"]["finalizers"] == ["foregroundDeletion"]
    kubectl("patch", "pod", pod, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    until_gone(kubectl, "job/work")


def test_an_orphaned_pod_outlives_its_job(kubectl: Kubectl) -> None:
    pod = submit(kubectl)
    kubectl("delete", "job", "work", "--cascade=orphan")
    until_gone(kubectl, "job/work")
    kubectl("wait", f"pod/{pod}", "--for=jsonpath={.status.phase}=Running", "--timeout=30s")
    metadata = kubectl.object("get", "pod", pod)["metadata"]
    assert "ownerReferences" not in metadata
    deadline = time.monotonic() + PATIENCE_SECONDS
    while "finalizers" in kubectl.object("get", "pod", pod)["metadata"]:
        assert time.monotonic() < deadline
    assert "deletionTimestamp" not in metadata


def test_a_namespace_is_deleted_with_all_that_is_in_it(kubectl: Kubectl) -> None:
    pod = submit(kubectl)
    kubectl("create", "configmap", "settings", "--from-literal=a=b")
    with followed(kubectl) as watch:
        output = kubectl("delete", "namespace", kubectl.namespace)
        watch.gone(pod)
    assert f'namespace "{kubectl.namespace}" deleted' in output
    assert "NotFound" in kubectl.refused("get", "namespace", kubectl.namespace)
    assert kubectl("get", "all", "-o", "name") == ""


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (("crash", "node-99"), "no node 'node-99' to crash"),
        (("heal", "node-1"), "node node-1 has no fault"),
    ],
    ids=["no such node", "healthy"],
)
def test_a_fault_that_cannot_be_is_refused(
    server: ServerProcess, arguments: tuple[str, ...], want: str
) -> None:
    result = cluster.run("node", *arguments, "--data-dir", server.data_dir)
    assert result.returncode != 0
    assert want in result.stderr
