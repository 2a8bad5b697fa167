# SPDX-License-Identifier: Apache-2.0
"""`refloat up --nodes N`: nodes as processes of their own, which come, go and are found again."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from tests.e2e import cluster
from tests.e2e.cluster import PATIENCE_SECONDS, Api, Object, Server
from tests.e2e.test_agent import PODS, phase, pod, until

T = TypeVar("T")

NODES = "/api/v1/nodes"

SCRIPT = 'trap "exit 5" TERM; echo x >> /v/$0; while [ ! -e /v/go ]; do sleep 0.1; done; exit 7'


def wait(holds: Callable[[], T], what: str) -> T:
    """What is there, once it is."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := holds()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return found


def processes(folder: Path) -> dict[int, str]:
    """Agents and keepers of a data directory, by pid."""
    found = {}
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                command = (each / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue  # it has just ended
            if f"{folder}/nodes/" in command:
                found[int(each.name)] = command
    return found


def agent_of(folder: Path, name: str) -> int:
    wanted = f"--name {name} "
    return next((pid for pid, each in processes(folder).items() if wanted in each), 0)


@contextmanager
def up(folder: Path, nodes: int = 1, *flags: str) -> Iterator[Server]:
    """A cluster whose nodes are ready."""
    with cluster.serving(folder, "--controllers", "*", "--nodes", str(nodes), *flags) as server:
        api = Api(server.kubeconfig)
        for number in range(1, nodes + 1):
            until(api, f"{NODES}/n{number}", is_ready)
        yield server


def is_ready(node: Object) -> bool:
    told = node["status"].get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in told)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A data directory, of which no process is left."""
    found = tmp_path / "data"
    yield found
    for pid in processes(found):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def shown(tmp_path: Path) -> Path:
    """A folder that all pods see."""
    tmp_path.chmod(0o755)
    made = tmp_path / "shown"
    made.mkdir()
    made.chmod(0o777)
    return made


def made(name: str, node: str, shown: Path) -> Object:
    container = {
        "command": ["sh", "-c", SCRIPT, name],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    }
    volumes = [{"name": "v", "hostPath": {"path": str(shown)}}]
    return pod(name, "", container=container, volumes=volumes, nodeName=node)


def test_pods_run_on_when_the_cluster_is_killed_and_are_found_again(
    folder: Path, shown: Path
) -> None:
    with up(folder, 2) as server:
        api = Api(server.kubeconfig)
        for name, node in (("a", "n1"), ("b", "n2")):
            api.create(PODS, made(name, node, shown))
        for name in ("a", "b"):
            until(api, f"{PODS}/{name}", phase("Running"))
        server.kill()
    wait(lambda: not agent_of(folder, "n1") and not agent_of(folder, "n2"), "agents live on")
    (shown / "go").touch()
    with up(folder, 2) as server:
        api = Api(server.kubeconfig)
        for name in ("a", "b"):
            ended = until(api, f"{PODS}/{name}", phase("Failed"))
            (status,) = ended["status"]["containerStatuses"]
            assert (status["restartCount"], status["state"]["terminated"]["exitCode"]) == (0, 7)
            assert (shown / name).read_text() == "x\n"
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
    folder: Path, shown: Path
) -> None:
    with up(folder, 3) as server:
        api = Api(server.kubeconfig)
        for node in ("n1", "n2", "n3"):
            api.create(PODS, made(node, node, shown))
        for node in ("n1", "n2", "n3"):
            until(api, f"{PODS}/{node}", phase("Running"))
        node_is(folder, "freeze", "n2")
        node_is(folder, "partition", "n3")
        assert server.end() == 0
    have_ended_with_grace(folder, "n1", "n2", "n3")


def test_a_cluster_that_is_stopped_ends_its_pods_with_grace_also_where_an_agent_had_died(
    folder: Path, shown: Path
) -> None:
    with up(folder) as server:
        api = Api(server.kubeconfig)
        api.create(PODS, made("a", "n1", shown))
        until(api, f"{PODS}/a", phase("Running"))
        os.kill(wait(lambda: agent_of(folder, "n1"), "no agent"), signal.SIGKILL)
        wait(lambda: "is started again in 1 s" in server.errors(), "it is not missed")
        assert server.end() == 0
    have_ended_with_grace(folder, "a")


def test_an_agent_that_dies_is_started_again(folder: Path, shown: Path) -> None:
    with up(folder) as server:
        api = Api(server.kubeconfig)
        api.create(PODS, made("a", "n1", shown))
        until(api, f"{PODS}/a", phase("Running"))
        before = wait(lambda: agent_of(folder, "n1"), "no agent")
        os.kill(before, signal.SIGKILL)
        wait(lambda: agent_of(folder, "n1") not in (0, before), "no new agent")
        (shown / "go").touch()
        until(api, f"{PODS}/a", phase("Failed"))
        assert (shown / "a").read_text() == "x\n"
        assert server.end() == 0
    assert "the agent of node n1 ended with -9, and is started again in 1 s" in server.errors()


def node_is(folder: Path, verb: str, name: str = "n1") -> None:
    done = cluster.run("node", verb, name, "--data-dir", folder)
    assert done.returncode == 0, done.stderr


def test_a_node_fails_in_every_way_and_returns(folder: Path, shown: Path) -> None:
    with up(folder, 1, "--fast") as server:
        api = Api(server.kubeconfig)
        ticking = "while true; do date +%N > /v/$0; sleep 0.05; done"
        ticks = shown / "ticks"

        def run(name: str) -> None:
            obj = made(name, "n1", shown)
            obj["spec"]["containers"][0]["command"] = ["sh", "-c", ticking, "ticks"]
            obj["spec"]["tolerations"] = [{"operator": "Exists"}]
            api.create(PODS, obj)
            until(api, f"{PODS}/{name}", phase("Running"))

        def ticks_on() -> None:
            before = ticks.read_text()
            wait(lambda: ticks.read_text() not in ("", before), "the container does nothing")

        run("a")
        for verb in ("freeze", "partition"):
            node_is(folder, verb)
            until(api, f"{NODES}/n1", lambda node: not is_ready(node))
            ticks_on()
            node_is(folder, "heal")
            until(api, f"{NODES}/n1", is_ready)
        node_is(folder, "crash")
        wait(lambda: not processes(folder), "something of the node is left")
        node_is(folder, "heal")
        ended = until(api, f"{PODS}/a", phase("Failed"))
        (status,) = ended["status"]["containerStatuses"]
        assert status["state"]["terminated"]["reason"] == "ContainerStatusUnknown"
        until(api, f"{NODES}/n1", is_ready)
        run("b")
        node_is(folder, "shutdown")
        assert until(api, f"{PODS}/b", phase("Failed"))["status"]["reason"] == "Terminated"
        wait(lambda: not processes(folder), "something of the node is left")
        node_is(folder, "heal")
        until(api, f"{NODES}/n1", is_ready)
        assert server.end() == 0
