# SPDX-License-Identifier: Apache-2.0
"""`refloat agent --pod-manifest-path`: processes that need no API server."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e import agents, cluster
from tests.e2e.agents import Agent
from tests.e2e.cluster import Api, Kubectl, Object, Server
from tests.e2e.test_agent import PODS, TAINT, phase, pod, until
from tests.e2e.test_up_nodes import wait

MIRROR = f"{PODS}/web-n1"
HASH = "kubernetes.io/config.hash"

# `$$` is how Kubernetes writes a dollar sign.
SCRIPT = 'trap "exit 0" TERM; echo $$$$ >> /v/$WORD; echo $WORD; while :; do sleep 0.05; done'


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with cluster.serving(tmp_path / "data", "--controllers", "*") as found:
        yield found


@pytest.fixture
def shown(tmp_path: Path) -> Path:
    """A folder that all pods see."""
    tmp_path.chmod(0o755)
    made = tmp_path / "shown"
    made.mkdir()
    made.chmod(0o777)
    return made


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    made = tmp_path / "manifests"
    made.mkdir()
    return made


@pytest.fixture
def node(server: Server, manifests: Path) -> Iterator[Agent]:
    # With its taint: whoever writes the node's files is no stranger.
    with agents.joined(server, "n1", "--pod-manifest-path", str(manifests)) as found:
        yield found


def web(shown: Path, word: str) -> Object:
    """A pod that notes each start in a file of this name."""
    container = {
        "env": [{"name": "WORD", "value": word}],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    }
    volumes = [{"name": "v", "hostPath": {"path": str(shown)}}]
    return pod("web", SCRIPT, container=container, volumes=volumes, restartPolicy="Always")


def write(path: Path, obj: Object) -> None:
    beside = path.with_name(f".{path.name}")
    beside.write_text(yaml.safe_dump(obj))
    beside.replace(path)


def pids(shown: Path, word: str) -> list[int]:
    """Of the processes that a pod began, one after the other."""
    noted = shown / word
    return [int(each) for each in noted.read_text().split()] if noted.exists() else []


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_static_pod_comes_changes_and_goes_with_its_file(
    server: Server, node: Agent, manifests: Path, shown: Path, tmp_path: Path
) -> None:
    api, kubectl = Api(server.kubeconfig), Kubectl(server.kubeconfig, tmp_path)
    (manifests / "bad.yaml").write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n")
    write(manifests / "web.yaml", web(shown, "one"))
    mirror = until(api, MIRROR, phase("Running"))
    taints = api.get("/api/v1/nodes/n1")["spec"]["taints"]
    assert TAINT in [each["key"] for each in taints]
    wait(lambda: kubectl.run("logs", "web-n1").stdout == "one\n", "it says nothing")
    assert f"{manifests}/bad.yaml: spec.containers: Required value" in node.errors()

    kubectl("delete", "pod", "web-n1", "--wait=false")
    again = until(api, MIRROR, lambda each: each["metadata"]["uid"] != mirror["metadata"]["uid"])
    assert again["metadata"]["annotations"][HASH] == mirror["metadata"]["annotations"][HASH]
    (first,) = pids(shown, "one")
    assert is_alive(first)

    write(manifests / "web.yaml", web(shown, "two"))
    wait(lambda: pids(shown, "two"), "the new version does not run")
    assert not is_alive(first)
    until(api, MIRROR, lambda each: each["spec"]["containers"][0]["env"][0]["value"] == "two")
    (second,) = pids(shown, "two")

    (manifests / "web.yaml").unlink()
    wait(lambda: api.ask("GET", MIRROR).status == 404, "the mirror stays")
    assert not is_alive(second)
    assert node.errors().count("bad.yaml") == 1


def test_a_static_pod_needs_no_api_server(
    server: Server, node: Agent, manifests: Path, shown: Path, tmp_path: Path
) -> None:
    until(Api(server.kubeconfig), "/api/v1/nodes/n1", lambda each: each["status"].get("conditions"))
    assert server.end() == 0
    write(manifests / "web.yaml", web(shown, "one"))
    wait(lambda: pids(shown, "one"), "it waits for an API server")
    (first,) = pids(shown, "one")
    node.kill()
    node.start()  # also an agent that never heard of the cluster runs it
    write(manifests / "other.yaml", {**web(shown, "two"), "metadata": {"name": "other"}})
    wait(lambda: pids(shown, "two"), "an agent that begins waits for an API server")
    assert pids(shown, "one") == [first]
    with cluster.serving(server.data_dir, "--controllers", "*") as again:
        api = Api(again.kubeconfig)
        for name in ("web-n1", "other-n1"):
            until(api, f"{PODS}/{name}", phase("Running"))
        assert pids(shown, "one") == [first]
        node.process.send_signal(signal.SIGTERM)
        assert node._wait() == 0
        assert is_alive(first)
