# SPDX-License-Identifier: Apache-2.0
"""On a cluster: `refloat agent` is a node of Kubernetes, and the pods are real processes.

Scheduling, Jobs, taints and evictions are Kubernetes' own; two agents, each a
process with the rights of the node, do the rest. pytest does not
collect this module: `python -m tests.kubernetes` starts the cluster and runs it.
"""

import hashlib
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agents import AgentProcess
from tests.e2e.cluster import Api, Kubectl
from tests.e2e.node_cluster import wait
from tests.kubernetes import audit, joining
from tests.kubernetes.cluster import ZOMBIE_SECONDS
from tests.kubernetes.joining import TAINT, UNREACHABLE, Object, Place

NAMES = ("agent-a", "agent-b")

OURS = "refloat.dev/job-controller"
CONTROLLERS = [
    pytest.param("", id="the controller of Kubernetes"),
    pytest.param(OURS, id="the controller of Refloat"),
]

# Until the test creates the file `go`.
WAIT = "while [ ! -e /host/go ]; do sleep 0.1; done"

# Prints the index; `$$` is `$` to a kubelet.
TELL_PID = "echo $$$$ > /host/pid.tmp; mv /host/pid.tmp /host/pid"

# The annotation of a pod that may be made to fail by force.
OPT_IN = "kueue.x-k8s.io/safe-to-forcefully-terminate"

DISRUPTED: Object = {
    "rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}]
}

# The longest of these tests waits for a node to be lost.
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, AgentProcess]]:
    admin = Path(os.environ["REFLOAT_TEST_KUBECONFIG"])
    folder = tmp_path_factory.mktemp("agents")
    with ExitStack() as stack:
        yield {name: stack.enter_context(joining.joined(admin, folder, name)) for name in NAMES}


@pytest.fixture(scope="module")
def place(
    nodes: dict[str, AgentProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    admin = Path(os.environ["REFLOAT_TEST_KUBECONFIG"])
    kubectl = Kubectl(admin, tmp_path_factory.mktemp("home"), f"agents-{os.getpid()}")
    place = Place(Api(admin), kubectl, list(nodes))
    place.prepare()
    for name in nodes:
        place.until(f"/api/v1/nodes/{name}", is_ready)
    yield place
    place.api.ask("DELETE", f"/api/v1/namespaces/{kubectl.namespace}")


def is_ready(node: Object) -> bool:
    return joining.condition(node, "Ready").get("status") == "True"


def fails_job(*codes: int) -> Object:
    """A policy: a container that ends with this code fails the Job."""
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": list(codes)}}
    return {"rules": [rule]}


@pytest.mark.parametrize("name", NAMES)
def test_a_node_registers_with_its_taint_and_is_ready(place: Place, name: str) -> None:
    node = place.until(
        f"/api/v1/nodes/{name}",
        lambda each: joining.taints(each) == {(TAINT, "NoExecute")},  # `not-ready` goes
    )
    assert is_ready(node)
    assert joining.condition(node, "Ready")["reason"] == "KubeletReady"
    assert place.kubectl("get", "node", name, "--no-headers").split()[:2] == [name, "Ready"]


# Whose pods run


def test_a_pod_that_does_not_tolerate_the_taint_is_not_scheduled(place: Place) -> None:
    place.run("uninvited", "true", nodes=["agent-a"], tolerations=[])
    pod = place.until(
        f"{place.pods}/uninvited",
        lambda each: joining.condition(each, "PodScheduled").get("status") == "False",
    )
    assert "had untolerated taint(s)" in joining.condition(pod, "PodScheduled")["message"]
    place.kubectl("delete", "pod", "uninvited", "--wait")


def test_a_pod_that_comes_past_the_scheduler_does_not_run(place: Place, tmp_path: Path) -> None:
    """Whether the agent rejects the pod or Kubernetes evicts the pod first."""
    script = "touch /host/ran"
    place.run("intruder", script, host=tmp_path, nodeName="agent-a", affinity={}, tolerations=[])
    path = f"{place.pods}/intruder"

    def is_over() -> bool:
        answer = place.api.ask("GET", path)
        return answer.status == 404 or answer.object["status"]["phase"] == "Failed"

    wait(is_over, "the pod is neither failed nor gone")
    assert not (tmp_path / "ran").exists()


def test_a_pod_that_tolerates_everything_is_rejected_by_the_agent(
    place: Place, tmp_path: Path
) -> None:
    place.run("blanket", "touch /host/ran", host=tmp_path, tolerations=[{"operator": "Exists"}])
    status = place.pod("blanket", "Failed")["status"]
    why = f"the pod does not tolerate {TAINT} by its name"
    text = f"Pod was rejected: Predicate TaintToleration failed: {why}"
    assert (status["reason"], status["message"]) == ("TaintToleration", text)
    assert not (tmp_path / "ran").exists()


# Jobs


@pytest.mark.parametrize("managed_by", CONTROLLERS)
def test_a_job_hashes_files_by_index(place: Place, managed_by: str, tmp_path: Path) -> None:
    """With a ConfigMap and a Secret, which the Node authorizer allows for their sake alone."""
    name = f"hashes-{'ours' if managed_by else 'theirs'}"
    place.kubectl("create", "configmap", name, "--from-literal=prefix=sum")
    place.kubectl("create", "secret", "generic", name, "--from-literal=salt=sea")
    for index in range(6):
        (tmp_path / f"{index}.data").write_bytes(f"file {index}\n".encode() * 100_000)
    prefix = {"configMapKeyRef": {"name": name, "key": "prefix"}}
    salt = {"secretKeyRef": {"name": name, "key": "salt"}}
    place.submit(
        name,
        "cd /host && (cat $JOB_COMPLETION_INDEX.data; printf $SALT) | sha256sum "
        "> $PREFIX.$JOB_COMPLETION_INDEX && echo index $JOB_COMPLETION_INDEX",
        managed_by=managed_by,
        host=tmp_path,
        container={
            "env": [
                {"name": "PREFIX", "valueFrom": prefix},
                {"name": "SALT", "valueFrom": salt},
            ]
        },
        completionMode="Indexed",
        completions=6,
        parallelism=3,
    )
    status, end = place.over(name)
    assert end["type"] == "Complete", status
    assert (status["succeeded"], status["completedIndexes"]) == (6, "0-5")
    for index in range(6):
        content = (tmp_path / f"{index}.data").read_bytes() + b"sea"
        (digest, _) = (tmp_path / f"sum.{index}").read_text().split()
        assert digest == hashlib.sha256(content).hexdigest()
    logs = place.kubectl("logs", "--selector", f"job-name={name}", "--tail", "-1")
    assert sorted(logs.splitlines()) == [f"index {index}" for index in range(6)]


@pytest.mark.parametrize("managed_by", CONTROLLERS)
def test_an_exit_code_fails_a_job_by_its_policy(place: Place, managed_by: str) -> None:
    name = f"bug-{'ours' if managed_by else 'theirs'}"
    place.submit(name, "exit 42", managed_by=managed_by, podFailurePolicy=fails_job(42))
    status, end = place.over(name)
    (pod,) = place.pods_of(name)
    assert (status["failed"], end["reason"]) == (1, "PodFailurePolicy")
    assert end["message"] == (
        f"Container main for pod {place.kubectl.namespace}/{pod['metadata']['name']} failed "
        "with exit code 42 matching FailJob rule at index 0"
    )


def test_a_container_over_its_memory_limit_fails_a_job_by_its_policy(place: Place) -> None:
    """behaviour D5.4; `tail` keeps the one line of input"""
    place.submit(
        "greedy",
        "head -c 300000000 /dev/zero | tail",
        container={"resources": {"limits": {"memory": "50Mi"}}},
        podFailurePolicy=fails_job(137),
    )
    _, end = place.over("greedy")
    (pod,) = place.pods_of("greedy")
    state = joining.terminated(pod)
    assert (state["exitCode"], state["reason"]) == (137, "OOMKilled")
    assert (end["type"], end["reason"]) == ("Failed", "PodFailurePolicy")


# kubectl


def test_kubectl_reads_logs_through_the_api_server(place: Place) -> None:
    script = "for i in 1 2 3; do echo line $i; done; exit 1"
    place.run("again", script, restartPolicy="OnFailure")
    place.until(
        f"{place.pods}/again",
        lambda each: any(
            one["restartCount"] for one in each["status"].get("containerStatuses") or ()
        ),
    )
    kubectl = place.kubectl
    assert kubectl("logs", "again", "--previous") == "line 1\nline 2\nline 3\n"
    assert kubectl("logs", "again", "--previous", "--tail", "1") == "line 3\n"
    assert kubectl("logs", "again", "--previous", "--limit-bytes", "9") == "line 1\nli"
    kubectl("delete", "pod", "again", "--wait")


def test_kubectl_follows_a_log_until_its_container_ends(place: Place, tmp_path: Path) -> None:
    place.run("ticks", f"echo one; {WAIT}; echo two", host=tmp_path)
    place.pod("ticks", "Running")
    with place.kubectl.process("logs", "--follow", "ticks") as reading:
        assert reading.stdout is not None
        assert reading.stdout.readline() == b"one\n"
        (tmp_path / "go").touch()
        assert reading.stdout.read() == b"two\n"
        assert reading.wait(joining.PATIENCE_SECONDS) == 0
    place.pod("ticks", "Succeeded")


def test_kubectl_deletes_a_pod_with_grace(place: Place, tmp_path: Path) -> None:
    script = (
        "trap 'echo bye > /host/said; exit 0' TERM; touch /host/up; while :; do sleep 0.1; done"
    )
    place.run("polite", script, host=tmp_path)
    wait((tmp_path / "up").exists, "the container does not run")
    place.kubectl("delete", "pod", "polite", "--wait")
    assert (tmp_path / "said").read_text() == "bye\n"
    assert place.api.ask("GET", f"{place.pods}/polite").status == 404


def test_a_pod_that_does_not_listen_is_killed_after_its_grace(place: Place, tmp_path: Path) -> None:
    place.run("deaf", f"trap '' TERM; {TELL_PID}; sleep 600", host=tmp_path)
    pid = running_pid(tmp_path)
    place.kubectl("delete", "pod", "deaf", "--grace-period", "2", "--wait")
    assert not joining.is_alive(pid)


def running_pid(host: Path) -> int:
    """The number of a container's first process, once the container runs."""
    wait((host / "pid").exists, "the container does not run")
    pid = int((host / "pid").read_text())
    assert joining.is_alive(pid)
    return pid


# Agents that die and freeze


def test_an_agent_that_is_killed_finds_its_pods_again(
    place: Place, nodes: dict[str, AgentProcess], tmp_path: Path
) -> None:
    """None runs twice, and no exit code is lost: of ten indexes the fourth fails."""
    count = 10
    place.submit(
        "restarted",
        f"echo x >> /host/$JOB_COMPLETION_INDEX; {WAIT}; [ $JOB_COMPLETION_INDEX != 3 ] || exit 7",
        host=tmp_path,
        pod={"nodes": ["agent-a"]},
        completionMode="Indexed",
        completions=count,
        parallelism=count,
        backoffLimitPerIndex=0,
    )
    place.until(f"{place.jobs}/restarted", lambda each: each["status"].get("ready") == count)
    nodes["agent-a"].kill()
    (tmp_path / "go").touch()  # they end while no agent runs
    nodes["agent-a"].start()
    status, end = place.over("restarted")
    assert end["reason"] == "FailedIndexes"
    assert (status["completedIndexes"], status["failedIndexes"]) == ("0-2,4-9", "3")
    pods = place.pods_of("restarted")
    codes = sorted(joining.terminated(each)["exitCode"] for each in pods)
    assert codes == [0] * (count - 1) + [7]
    assert [(tmp_path / str(index)).read_text() for index in range(count)] == ["x\n"] * count


def test_of_two_pods_on_a_frozen_node_the_one_that_opted_in_is_freed(
    place: Place, nodes: dict[str, AgentProcess], tmp_path: Path
) -> None:
    """behaviour C3.4, C3.8, C2.9: Kubernetes loses the node, evicts, and waits; KEP-6757"""
    zombie_host, stuck_host = (tmp_path / each for each in ("zombie", "stuck"))
    # Only the first attempt hangs.
    script = f"[ ! -e /host/pid ] || exit 0; {TELL_PID}; sleep 600"
    submit_evictable(
        place,
        "zombie",
        script,
        zombie_host,
        annotations={OPT_IN: "true"},
        podReplacementPolicy="Failed",
    )
    zombie_pid = running_pid(zombie_host)
    (zombie,) = place.pods_of("zombie")
    node = zombie["spec"]["nodeName"]
    script = f"{TELL_PID}; sleep 600"
    submit_evictable(place, "stuck", script, stuck_host, nodes=[node], podFailurePolicy=DISRUPTED)
    stuck_pid = running_pid(stuck_host)
    for job in ("zombie", "stuck"):
        place.until(f"{place.jobs}/{job}", lambda each: each["status"].get("ready") == 1)
    with frozen(nodes[node]):
        stuck_pod = lost(place, node, "stuck")
        freed(place, zombie)
        assert place.api.get(stuck_pod)["status"]["phase"] == "Running"
        assert place.api.get(f"{place.jobs}/stuck")["status"]["terminating"] == 1
        assert joining.is_alive(stuck_pid)
        assert joining.is_alive(zombie_pid)
    status, end = place.over("stuck")
    assert (status["failed"], end["reason"]) == (1, "PodFailurePolicy")
    assert "has condition DisruptionTarget matching FailJob rule at index 0" in end["message"]
    for path in (stuck_pod, f"{place.pods}/{zombie['metadata']['name']}"):
        place.until_gone(path)
    assert not joining.is_alive(stuck_pid)
    assert not joining.is_alive(zombie_pid)
    place.until(
        f"/api/v1/nodes/{node}",
        lambda each: is_ready(each) and joining.taints(each) == {(TAINT, "NoExecute")},
    )


def submit_evictable(
    place: Place, name: str, script: str, host: Path, *, nodes: list[str] | None = None, **spec: Any
) -> None:
    """A Job whose pods leave a lost node after a second, and then have another one to end."""
    host.mkdir()
    shortly = {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute"}
    pod = {
        "nodes": nodes,
        "tolerations": [
            {"key": TAINT, "operator": "Exists"},
            {**shortly, "tolerationSeconds": 1},
        ],
        "terminationGracePeriodSeconds": 1,
    }
    place.submit(name, script, host=host, pod=pod, **spec)


@contextmanager
def frozen(agent: AgentProcess) -> Iterator[None]:
    """An agent that does nothing until the block ends, while the containers run on."""
    agent.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        agent.process.send_signal(signal.SIGCONT)


def lost(place: Place, node: str, job: str) -> str:
    """The path of the Job's pod on the silent node, after the pod's time to end."""
    current = place.until(
        f"/api/v1/nodes/{node}",
        lambda each: (UNREACHABLE, "NoExecute") in joining.taints(each),
    )
    ready = joining.condition(current, "Ready")
    assert (ready["status"], ready["reason"]) == ("Unknown", "NodeStatusUnknown")
    (pod,) = place.pods_of(job)
    path = f"{place.pods}/{pod['metadata']['name']}"
    pod = place.until(path, lambda each: "deletionTimestamp" in each["metadata"])
    target = joining.condition(pod, "DisruptionTarget")
    assert (target["status"], target["reason"]) == ("True", "DeletionByTaintManager")
    ends_at = datetime.fromisoformat(pod["metadata"]["deletionTimestamp"]).timestamp()
    wait(lambda: time.time() > ends_at + 2, "time stands still")
    return path


def freed(place: Place, zombie: Object) -> None:
    """Refloat's manager makes the pod Failed, and Kubernetes' own controller replaces it."""
    name, node = zombie["metadata"]["name"], zombie["spec"]["nodeName"]
    failed = place.pod(name, "Failed")
    message = (
        f"Pod forcefully terminated after {1 + ZOMBIE_SECONDS}s grace period due to "
        f"unreachable node `{node}` (triggered by `{OPT_IN} annotation`)"
    )
    condition = joining.condition(failed, "KueueFailureRecovery")
    assert (condition["status"], condition["reason"], condition["message"]) == (
        *("True", "KueueForcefullyTerminated"),
        message,
    )
    events = f"/api/v1/namespaces/{place.kubectl.namespace}/events"
    about = f"involvedObject.name={name},reason=KueueForcefullyTerminated"
    (event,) = place.until(f"{events}?fieldSelector={about}", lambda each: each["items"])["items"]
    assert (event["type"], event["message"]) == ("Warning", message)
    status, end = place.over("zombie")
    assert (end["type"], status["succeeded"], status["failed"]) == ("Complete", 1, 1)
    where = {each["metadata"]["name"]: each["spec"]["nodeName"] for each in place.pods_of("zombie")}
    del where[name]
    assert list(where.values()) == [each for each in NAMES if each != node]


# The last test: the audit log has all earlier ones.


@pytest.mark.usefixtures("place")
def test_nodes_have_the_rights_that_they_need(nodes: dict[str, AgentProcess]) -> None:
    entries = [each for name in nodes for each in audit.asked(f"system:node:{name}")]
    assert {"nodes/status", "leases", "pods/status", "configmaps", "secrets", "events"} <= {
        each.resource for each in entries
    }
    # An agent may read a pod before the authorizer knows of it: then the agent retries.
    refusals = {(each.verb, each.resource) for each in entries if each.refused}
    assert refusals <= {("get", "pods")}
    for agent in nodes.values():
        assert "forbidden" not in agent.errors()
