# SPDX-License-Identifier: Apache-2.0
"""Pods that do what no pod should, all at once on one node, beside one that works."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from refloat.agent.keeper import process_tree, service
from tests.e2e import agents, cluster
from tests.e2e.agents import AgentProcess
from tests.e2e.cluster import Api, Kubectl, Object, ServerProcess
from tests.e2e.node_cluster import PODS, phase, pod, shell, until, wait


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("bad") / "data"
    with cluster.serving(folder, "--controllers", "*") as server:
        yield server


@pytest.fixture(scope="module")
def node(server: ServerProcess) -> Iterator[AgentProcess]:
    with agents.joined(server, "n1", "--accept-all-pods") as agent:
        yield agent


@pytest.fixture(scope="module")
def api(server: ServerProcess, node: AgentProcess) -> Api:
    return Api(server.kubeconfig)


@pytest.fixture(scope="module")
def kubectl(
    server: ServerProcess, node: AgentProcess, tmp_path_factory: pytest.TempPathFactory
) -> Kubectl:
    return Kubectl(server.kubeconfig, tmp_path_factory.mktemp("home"))


def processes(node: AgentProcess) -> list[int]:
    """All that carry the node's mark."""
    return process_tree.find_marked(service.node_mark(str(node.folder)))


def command(name: str, *argv: str) -> Object:
    return pod(name, "", container={"command": list(argv)})


def ended(api: Api, name: str) -> Object:
    """How the container of a pod ended."""
    current = until(api, f"{PODS}/{name}", lambda each: each["status"].get("phase") in ENDS)
    (status,) = current["status"]["containerStatuses"]
    state: Object = status["state"]["terminated"]
    return state


ENDS = ("Succeeded", "Failed")

# `$$` is how Kubernetes writes a dollar sign.
FLOOD = "yes 0123456789012345678901234567890123456789 | head --bytes 30000000"
DAEMON = "setsid sleep 1001 < /dev/null > /dev/null 2>&1 & sleep 0.2; exit 0"
DEAF = 'trap "" TERM; echo deaf; while :; do sleep 0.05; done'
BINARY = r"printf '\000\377\n\033[31mred'"


def test_nothing_else_on_a_node_suffers_from_pods_that_misbehave(
    api: Api, kubectl: Kubectl, node: AgentProcess, tmp_path: Path
) -> None:
    tmp_path.chmod(0o777)
    plain = tmp_path / "plain"
    plain.write_text("no program")
    for manifest in (
        pod("good", "while :; do sleep 0.05; done", terminationGracePeriodSeconds=1),
        command("missing", "/no/such/program"),
        command("plain", str(plain)),
        pod("flood", FLOOD),
        pod("daemon", DAEMON),
        pod("deaf", DEAF, terminationGracePeriodSeconds=1),
        pod("binary", BINARY),
        pod("volume", "true", volumes=[{"name": "v", "hostPath": {"path": "/no/such/path"}}]),
    ):
        if manifest["metadata"]["name"] == "volume":
            mount = {"name": "v", "mountPath": "/v"}
            manifest["spec"]["containers"][0]["volumeMounts"] = [mount]
        api.create(PODS, manifest)

    for name, path in (("missing", "/no/such/program"), ("plain", str(plain))):
        state = ended(api, name)
        assert (state["exitCode"], state["reason"]) == (128, "StartError"), name
        assert path in state["message"]
    assert ended(api, "daemon")["exitCode"] == 0
    assert ended(api, "binary")["exitCode"] == 0
    reading = kubectl._command(("logs", "binary"))
    assert subprocess.check_output(reading, env=kubectl._environment) == b"\0\xff\n\x1b[31mred"
    assert ended(api, "flood")["exitCode"] == 0
    assert kubectl("logs", "flood", "--tail", "1").startswith("0123456789")
    logs = list((node.folder / "pods").glob("*/logs/main/*"))
    assert sum(each.stat().st_size for each in logs) < 60_000_000
    waiting = api.get(f"{PODS}/volume")["status"]["containerStatuses"][0]["state"]["waiting"]
    assert waiting["reason"] == "ContainerCreating"

    until(api, f"{PODS}/deaf", phase("Running"))
    wait(lambda: kubectl("logs", "deaf") == "deaf\n", "it says nothing")
    good = api.get(f"{PODS}/good")["status"]
    assert (good["phase"], good["containerStatuses"][0]["restartCount"]) == ("Running", 0)
    api.create(PODS, pod("later", "echo still here"))
    assert ended(api, "later")["exitCode"] == 0

    kubectl("delete", "pod", "--all", "--wait")
    wait(lambda: len(processes(node)) == 0, "processes are left")
    wait(lambda: not list((node.folder / "pods").iterdir()), "folders are left")
    assert node.process.poll() is None


def sidecar(name: str, script: str, **more: Any) -> Object:
    return {**shell(script, **more), "name": name, "restartPolicy": "Always"}


def test_sidecars_hooks_and_messages_are_those_of_real_processes(
    api: Api, kubectl: Kubectl, tmp_path: Path
) -> None:
    tmp_path.chmod(0o777)
    volumes = [{"name": "v", "hostPath": {"path": str(tmp_path)}}]
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "echo hook >> /v/story"]}}}
    forever = "while :; do sleep 0.05; done"
    main = shell(
        f"echo last words > /v/words; echo main >> /v/story; {forever}",
        **mounts,
        terminationMessagePath="/v/words",
    )
    main["command"][2] = f'trap "echo term >> /v/story; exit 3" TERM; {main["command"][2]}'
    init = {**shell("echo init >> /v/story", **mounts), "name": "init"}
    beside = sidecar("beside", f"echo beside >> /v/story; {forever}", lifecycle=hook, **mounts)
    manifest = pod("whole", "", volumes=volumes, terminationGracePeriodSeconds=60)
    manifest["spec"] |= {"initContainers": [init, beside], "containers": [main]}
    manifest["metadata"]["finalizers"] = ["example.com/look"]
    api.create(PODS, manifest)
    story = tmp_path / "story"
    wait(lambda: story.exists() and len(story.read_text().split()) == 3, "it does not run")
    # They are started in turn, and then run beside each other.
    first, *others = story.read_text().split()
    assert (first, sorted(others)) == ("init", ["beside", "main"])
    kubectl("delete", "pod", "whole", "--wait=false")
    state = ended(api, "whole")
    assert (state["exitCode"], state["message"]) == (3, "last words\n")
    assert sorted(story.read_text().split()[3:]) == ["hook", "term"]
    patch = [{"op": "remove", "path": "/metadata/finalizers"}]
    api.ask("PATCH", f"{PODS}/whole", patch, content_type="application/json-patch+json")
