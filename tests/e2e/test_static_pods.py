# SPDX-License-Identifier: Apache-2.0
"""`refloat agent --pod-manifest-path`: processes that need no API server."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e import agents, cluster
from tests.e2e.agents import AgentProcess
from tests.e2e.cluster import Api, Kubectl, Object, ServerProcess
from tests.e2e.node_cluster import PODS, TAINT, phase, pod, until, wait

MIRROR = f"{PODS}/web-n1"
HASH = "kubernetes.io/config.hash"

# `$$` is how Kubernetes writes a dollar sign.
SCRIPT = 'trap "exit 0" TERM; echo $$$$ >> /v/$WORD; echo $WORD; while :; do sleep 0.05; done'


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with cluster.serving(tmp_path / "data", "--controllers", "*") as server:
        yield server


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    folder = tmp_path / "manifests"
    folder.mkdir()
    return folder


@pytest.fixture
def node(server: ServerProcess, manifests: Path) -> Iterator[AgentProcess]:
    # With the node's taint: static pods tolerate every taint.
    with agents.joined(server, "n1", "--pod-manifest-path", str(manifests)) as agent:
        yield agent


def web(host_folder: Path, word: str) -> Object:
    """A pod that notes each start in a file of this name."""
    container = {
        "env": [{"name": "WORD", "value": word}],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    }
    volumes = [{"name": "v", "hostPath": {"path": str(host_folder)}}]
    return pod("web", SCRIPT, container=container, volumes=volumes, restartPolicy="Always")


def write(path: Path, obj: Object) -> None:
    beside = path.with_name(f".{path.name}")
    beside.write_text(yaml.safe_dump(obj))
    beside.replace(path)


def pids(host_folder: Path, word: str) -> list[int]:
    """Of the processes that a pod began, one after the other."""
    file = host_folder / word
    return [int(each) for each in file.read_text().split()] if file.exists() else []


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_static_pod_comes_changes_and_goes_with_its_file(
    server: ServerProcess, node: AgentProcess, manifests: Path, host_folder: Path, tmp_path: Path
) -> None:
    api, kubectl = Api(server.kubeconfig), Kubectl(server.kubeconfig, tmp_path)
    (manifests / "bad.yaml").write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n")
    write(manifests / "web.yaml", web(host_folder, "one"))
    mirror = until(api, MIRROR, phase("Running"))
    taints = api.get("/api/v1/nodes/n1")["spec"]["taints"]
    assert TAINT in [each["key"] for each in taints]
    wait(lambda: kubectl.run("logs", "web-n1").stdout == "one\n", "it says nothing")
    assert f"{manifests}/bad.yaml: spec.containers: Required value" in node.errors()

    kubectl("delete", "pod", "web-n1", "--wait=false")
    again = until(api, MIRROR, lambda each: each["metadata"]["uid"] != mirror["metadata"]["uid"])
    assert again["metadata"]["annotations"][HASH] == mirror["metadata"]["annotations"][HASH]
    (first,) = pids(host_folder, "one")
    assert is_alive(first)

    write(manifests / "web.yaml", web(host_folder, "two"))
    wait(lambda: pids(host_folder, "two"), "the new version does not run")
    assert not is_alive(first)
    until(api, MIRROR, lambda each: each["spec"]["containers"][0]["env"][0]["value"] == "two")
    (second,) = pids(host_folder, "two")

    (manifests / "web.yaml").unlink()
    wait(lambda: api.ask("GET", MIRROR).status == 404, "the mirror stays")
    assert not is_alive(second)
    assert node.errors().count("bad.yaml") == 1


def test_a_static_pod_needs_no_api_server(
    server: ServerProcess, node: AgentProcess, manifests: Path, host_folder: Path, tmp_path: Path
) -> None:
    until(Api(server.kubeconfig), "/api/v1/nodes/n1", lambda each: each["status"].get("conditions"))
    assert server.end() == 0
    write(manifests / "web.yaml", web(host_folder, "one"))
    wait(lambda: pids(host_folder, "one"), "it waits for an API server")
    (first,) = pids(host_folder, "one")
    node.kill()
    node.start()  # also an agent without any link to the cluster runs the pod
    write(manifests / "other.yaml", {**web(host_folder, "two"), "metadata": {"name": "other"}})
    wait(lambda: pids(host_folder, "two"), "an agent that begins waits for an API server")
    assert pids(host_folder, "one") == [first]
    with cluster.serving(server.data_dir, "--controllers", "*") as again:
        api = Api(again.kubeconfig)
        for name in ("web-n1", "other-n1"):
            until(api, f"{PODS}/{name}", phase("Running"))
        assert pids(host_folder, "one") == [first]
        node.process.send_signal(signal.SIGTERM)
        assert node._wait() == 0
        assert is_alive(first)
