# SPDX-License-Identifier: Apache-2.0
"""`refloat up --nodes N`: nodes as processes of their own, which come, go and are found again."""

import os
import signal
from pathlib import Path

from tests.e2e import cluster
from tests.e2e.cluster import Api, NodeCommands, Object
from tests.e2e.node_cluster import (
    NODES,
    PODS,
    agent_of,
    is_ready,
    phase,
    pod,
    processes,
    until,
    up,
    wait,
)

SCRIPT = 'trap "exit 5" TERM; echo x >> /v/$0; while [ ! -e /v/go ]; do sleep 0.1; done; exit 7'


def made(name: str, node: str, host_folder: Path) -> Object:
    container = {
        "command": ["sh", "-c", SCRIPT, name],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    }
    volumes = [{"name": "v", "hostPath": {"path": str(host_folder)}}]
    return pod(name, "", container=container, volumes=volumes, nodeName=node)


def test_pods_run_on_when_the_cluster_is_killed_and_are_found_again(
    folder: Path, host_folder: Path
) -> None:
    with up(folder, 2) as server:
        api = Api(server.kubeconfig)
        for name, node in (("a", "n1"), ("b", "n2")):
            api.create(PODS, made(name, node, host_folder))
        for name in ("a", "b"):
            until(api, f"{PODS}/{name}", phase("Running"))
        server.kill()
    wait(lambda: not agent_of(folder, "n1") and not agent_of(folder, "n2"), "agents live on")
    (host_folder / "go").touch()
    with up(folder, 2) as server:
        api = Api(server.kubeconfig)
        for name in ("a", "b"):
            current = until(api, f"{PODS}/{name}", phase("Failed"))
            (status,) = current["status"]["containerStatuses"]
            assert (status["restartCount"], status["state"]["terminated"]["exitCode"]) == (0, 7)
            assert (host_folder / name).read_text() == "x\n"
        assert server.end(signal.SIGINT) == 0
    assert processes(folder) == {}


def have_ended_with_grace(folder: Path, *names: str) -> None:
    """Of a cluster that was stopped."""
    assert processes(folder) == {}
    with cluster.serving(folder) as server:
        for name in names:
            status = Api(server.kubeconfig).get(f"{PODS}/{name}")["status"]
            (container,) = status["containerStatuses"]
            assert container["state"]["terminated"]["exitCode"] == 5
            assert (status["phase"], status["reason"]) == ("Failed", "Terminated")


def test_a_cluster_that_is_stopped_ends_its_pods_with_grace_also_on_nodes_that_fail(
    folder: Path, host_folder: Path
) -> None:
    with up(folder, 3) as server:
        api = Api(server.kubeconfig)
        for node in ("n1", "n2", "n3"):
            api.create(PODS, made(node, node, host_folder))
        for node in ("n1", "n2", "n3"):
            until(api, f"{PODS}/{node}", phase("Running"))
        NodeCommands(folder).fail("n2", "freeze")
        NodeCommands(folder).fail("n3", "partition")
        assert server.end() == 0
    have_ended_with_grace(folder, "n1", "n2", "n3")


def test_a_cluster_that_is_stopped_ends_its_pods_with_grace_also_where_an_agent_had_died(
    folder: Path, host_folder: Path
) -> None:
    with up(folder) as server:
        api = Api(server.kubeconfig)
        api.create(PODS, made("a", "n1", host_folder))
        until(api, f"{PODS}/a", phase("Running"))
        os.kill(wait(lambda: agent_of(folder, "n1"), "no agent"), signal.SIGKILL)
        wait(lambda: "is started again in 1 s" in server.errors(), "it is not missed")
        assert server.end() == 0
    have_ended_with_grace(folder, "a")


def test_an_agent_that_dies_is_started_again(folder: Path, host_folder: Path) -> None:
    with up(folder) as server:
        api = Api(server.kubeconfig)
        api.create(PODS, made("a", "n1", host_folder))
        until(api, f"{PODS}/a", phase("Running"))
        before = wait(lambda: agent_of(folder, "n1"), "no agent")
        os.kill(before, signal.SIGKILL)
        wait(lambda: agent_of(folder, "n1") not in (0, before), "no new agent")
        (host_folder / "go").touch()
        until(api, f"{PODS}/a", phase("Failed"))
        assert (host_folder / "a").read_text() == "x\n"
        assert server.end() == 0
    assert "the agent of node n1 ended with -9, and is started again in 1 s" in server.errors()


def test_a_node_fails_in_every_way_and_returns(folder: Path, host_folder: Path) -> None:
    with up(folder, 1, "--fast") as server:
        api, node = Api(server.kubeconfig), NodeCommands(folder)
        ticking = "while true; do date +%N > /v/$0; sleep 0.05; done"
        ticks = host_folder / "ticks"

        def run(name: str) -> None:
            obj = made(name, "n1", host_folder)
            obj["spec"]["containers"][0]["command"] = ["sh", "-c", ticking, "ticks"]
            obj["spec"]["tolerations"] = [{"operator": "Exists"}]
            api.create(PODS, obj)
            until(api, f"{PODS}/{name}", phase("Running"))

        def ticks_on() -> None:
            before = ticks.read_text()
            wait(lambda: ticks.read_text() not in ("", before), "the container does nothing")

        run("a")
        for verb in ("freeze", "partition"):
            node.fail("n1", verb)
            until(api, f"{NODES}/n1", lambda node: not is_ready(node))
            ticks_on()
            node.heal("n1")
            until(api, f"{NODES}/n1", is_ready)
        node.fail("n1", "crash")
        wait(lambda: not processes(folder), "something of the node is left")
        node.heal("n1")
        current = until(api, f"{PODS}/a", phase("Failed"))
        (status,) = current["status"]["containerStatuses"]
        assert status["state"]["terminated"]["reason"] == "ContainerStatusUnknown"
        until(api, f"{NODES}/n1", is_ready)
        run("b")
        node.fail("n1", "shutdown")
        assert until(api, f"{PODS}/b", phase("Failed"))["status"]["reason"] == "Terminated"
        wait(lambda: not processes(folder), "something of the node is left")
        node.heal("n1")
        until(api, f"{NODES}/n1", is_ready)
        assert server.end() == 0
