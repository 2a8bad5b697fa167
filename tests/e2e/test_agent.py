# SPDX-License-Identifier: Apache-2.0
"""A node that runs processes: Jobs, logs, and an agent that comes and goes."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import agents, cluster
from tests.e2e.agents import AgentProcess
from tests.e2e.cluster import PATIENCE_SECONDS, Api, Kubectl, Object, ServerProcess
from tests.e2e.node_cluster import JOBS, PODS, TAINT, phase, pod, shell, until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("agent") / "data"
    with cluster.serving(folder, "--controllers", "*") as server:
        yield server


@pytest.fixture(scope="module")
def node(server: ServerProcess) -> Iterator[AgentProcess]:
    with agents.joined(server, "n1", "--accept-all-pods") as agent:
        yield agent
        assert agent.end() == 0


@pytest.fixture(scope="module")
def api(server: ServerProcess, node: AgentProcess) -> Api:
    return Api(server.kubeconfig)


@pytest.fixture(scope="module")
def kubectl(
    server: ServerProcess, node: AgentProcess, tmp_path_factory: pytest.TempPathFactory
) -> Kubectl:
    return Kubectl(server.kubeconfig, tmp_path_factory.mktemp("home"))


def test_an_indexed_job_runs_as_processes_with_what_its_pods_name(
    api: Api, kubectl: Kubectl
) -> None:
    kubectl("create", "configmap", "settings", "--from-literal=colour=blue")
    kubectl("create", "secret", "generic", "login", "--from-literal=user=ann")
    script = "echo $JOB_COMPLETION_INDEX $COLOUR $NODE $(cat /etc/login/user) $CPU"
    container = shell(
        script,
        env=[
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {
                "name": "COLOUR",
                "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "colour"}},
            },
            {
                "name": "CPU",
                "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu", "divisor": "1m"}},
            },
        ],
        resources={"requests": {"cpu": "10m"}},
        volumeMounts=[{"name": "login", "mountPath": "/etc/login"}],
    )
    volumes = [{"name": "login", "secret": {"secretName": "login"}}]
    template = {"restartPolicy": "Never", "containers": [container], "volumes": volumes}
    spec = {
        "completions": 3,
        "parallelism": 3,
        "completionMode": "Indexed",
        "template": {"spec": template},
    }
    api.create(JOBS, {"metadata": {"name": "work"}, "spec": spec})
    job = until(api, f"{JOBS}/work", lambda each: each["status"].get("completionTime"))
    assert job["status"]["succeeded"] == 3
    printed = kubectl("logs", "--selector", "job-name=work", "--tail", "-1")
    assert sorted(printed.splitlines()) == [f"{index} blue n1 ann 10" for index in range(3)]


def is_between(attempts: int, pod: Object) -> bool:
    """Whether the container was restarted so often and waits for the next restart."""
    for status in pod["status"].get("containerStatuses") or ():
        waiting = status["state"].get("waiting") or {}
        return (status["restartCount"], waiting.get("reason")) == (attempts, "CrashLoopBackOff")
    return False


def test_kubectl_reads_logs_in_all_its_ways(api: Api, kubectl: Kubectl) -> None:
    script = "for i in 1 2 3; do echo line $i; done; exit 1"
    api.create(PODS, pod("again", script, restartPolicy="OnFailure"))
    until(
        api,
        f"{PODS}/again",
        lambda each: is_between(1, each),
    )
    assert kubectl("logs", "again") == "line 1\nline 2\nline 3\n"
    assert kubectl("logs", "again", "--previous", "--tail", "1") == "line 3\n"
    assert kubectl("logs", "again", "--limit-bytes", "9") == "line 1\nli"
    assert kubectl("logs", "again", "--since", "1h", "--tail", "2") == "line 2\nline 3\n"
    assert kubectl("logs", "again", "--since-time", "2100-01-01T00:00:00Z") == ""
    stamp, _, text = kubectl("logs", "again", "--timestamps", "--tail", "1").partition(" ")
    assert (stamp[-1], len(stamp), text) == ("Z", 30, "line 3\n")


def test_a_log_is_followed_until_its_container_ends(
    api: Api, kubectl: Kubectl, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    go = tmp_path / "go"
    api.create(
        PODS,
        pod(
            "ticks",
            "echo one; while [ ! -e /go/go ]; do sleep 0.1; done; echo two",
            container={"volumeMounts": [{"name": "go", "mountPath": "/go"}]},
            volumes=[{"name": "go", "hostPath": {"path": str(tmp_path)}}],
        ),
    )
    until(api, f"{PODS}/ticks", phase("Running"))
    reading = subprocess.Popen(
        kubectl._command(("logs", "--follow", "ticks")),
        env=kubectl._environment,
        stdout=subprocess.PIPE,
    )
    assert reading.stdout is not None
    lines = cluster.PipeLines(reading.stdout)
    assert lines.next() == "one"
    go.touch()
    assert lines.next() == "two"
    assert reading.wait(PATIENCE_SECONDS) == 0
    reading.stdout.close()
    until(api, f"{PODS}/ticks", phase("Succeeded"))


def test_what_is_missing_is_said_of_the_pod_and_by_logs(api: Api, kubectl: Kubectl) -> None:
    variable = {"name": "X", "valueFrom": {"configMapKeyRef": {"name": "none", "key": "k"}}}
    api.create(PODS, pod("variable", "true", container={"env": [variable]}))
    volume = {"name": "v", "secret": {"secretName": "none"}}
    api.create(PODS, pod("volume", "true", volumes=[volume]))
    current = until(api, f"{PODS}/variable", lambda each: each["status"].get("containerStatuses"))
    state = current["status"]["containerStatuses"][0]["state"]["waiting"]
    assert state == {
        "reason": "CreateContainerConfigError",
        "message": 'configmap "none" not found',
    }
    begin = 'Error from server (BadRequest): container "main" in pod'
    assert kubectl.refused("logs", "variable") == (
        f'{begin} "variable" is waiting to start: CreateContainerConfigError\n'
    )
    until(api, f"{PODS}/volume", lambda each: each["status"].get("containerStatuses"))
    assert kubectl.refused("logs", "volume") == (
        f'{begin} "volume" is waiting to start: ContainerCreating\n'
    )
    events = "/apis/events.k8s.io/v1/namespaces/default/events?fieldSelector=reason=FailedMount"
    event = until(api, events, lambda each: each["items"])["items"][0]
    assert event["note"] == 'MountVolume.SetUp failed for volume "v" : secret "none" not found'
    kubectl("delete", "pod", "variable", "volume", "--wait")


def test_an_agent_that_is_killed_finds_its_pods_again(
    api: Api, kubectl: Kubectl, node: AgentProcess, tmp_path: Path
) -> None:
    tmp_path.chmod(0o777)
    count = 20
    volumes = [{"name": "v", "hostPath": {"path": str(tmp_path)}}]
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    script = "echo x >> /v/$HOSTNAME_OF; while [ ! -e /v/go ]; do sleep 0.1; done; exit 7"
    for number in range(count):
        variable = [{"name": "HOSTNAME_OF", "value": f"p{number}"}]
        manifest = pod(f"p{number}", script, container={**mounts, "env": variable}, volumes=volumes)
        api.create(PODS, manifest)
    for number in range(count):
        until(api, f"{PODS}/p{number}", phase("Running"))
    node.kill()
    (tmp_path / "go").touch()  # they end while no agent watches
    node.start()
    for number in range(count):
        current = until(api, f"{PODS}/p{number}", phase("Failed"))
        (status,) = current["status"]["containerStatuses"]
        assert (status["restartCount"], status["state"]["terminated"]["exitCode"]) == (0, 7)
        assert (tmp_path / f"p{number}").read_text() == "x\n"


def test_a_second_agent_of_the_same_node_is_refused(node: AgentProcess) -> None:
    again = subprocess.run(node.command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert again.returncode == 2
    assert again.stderr == (
        f"refloat: another agent runs on {node.folder}: a node has one; stop it, "
        "or choose another --name\n"
    )


def test_what_an_agent_cannot_use_is_named(node: AgentProcess, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for flags, want in (
        (("--data-dir", f"{tmp_path}/file/x"), f"--data-dir: {tmp_path}/file/x/nodes/n1: Not "),
        (("--address", "nowhere"), "--address 'nowhere': not an IP address"),
        (("--name", "N_1"), "--name 'N_1': a lowercase RFC 1123 subdomain must consist of"),
    ):
        done = cluster.run(*node.command[1:], *flags)
        assert (done.returncode, done.stderr[: len(want) + 9]) == (2, f"refloat: {want}"), flags


def test_a_node_takes_no_pod_that_does_not_name_its_taint(server: ServerProcess, api: Api) -> None:
    with agents.joined(server, "n2"):
        taints = until(api, "/api/v1/nodes/n2", lambda each: each["spec"].get("taints"))
        assert {"key": TAINT, "effect": "NoExecute"} in taints["spec"]["taints"]
        blanket, exact = {"operator": "Exists"}, {"key": TAINT, "operator": "Exists"}
        api.create(PODS, pod("stranger", "true", nodeName="n2", tolerations=[blanket]))
        api.create(PODS, pod("guest", "true", nodeName="n2", tolerations=[exact]))
        status = until(api, f"{PODS}/stranger", phase("Failed"))["status"]
        why = f"the pod does not tolerate {TAINT} by its name"
        text = f"Pod was rejected: Predicate TaintToleration failed: {why}"
        assert (status["reason"], status["message"]) == ("TaintToleration", text)
        until(api, f"{PODS}/guest", phase("Succeeded"))
