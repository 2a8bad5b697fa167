# SPDX-License-Identifier: Apache-2.0
"""Nodes of real processes that run low: KEP-3329's "Node-pressure eviction", and the limits.

The machine is not filled: the thresholds are raised above the free amounts, under pods
that run already.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e import agents, cluster
from tests.e2e.agents import AgentProcess
from tests.e2e.cluster import PATIENCE_SECONDS, Api, Kubectl, Object, ServerProcess

PODS = "/api/v1/namespaces/default/pods"

# A node looks every ten seconds, and may miss some.
LOOK_SECONDS = 45.0

# By node: the scarce signal, the condition, and the resource in the messages.
LOW = {
    "memory": ("memory.available", "MemoryPressure", "memory"),
    "disk": ("nodefs.available", "DiskPressure", "ephemeral-storage"),
    "pids": ("pid.available", "PIDPressure", "pids"),
}
# 50 MB of memory, and a file of 3 MB in the volume.
SCRIPT = """
open('/work/big', 'wb').write(bytes(3_000_000)); print('ready', flush=True)
x = bytearray(50_000_000); import time; time.sleep(1000)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with cluster.serving(tmp_path_factory.mktemp("evictions") / "data") as server:
        yield server


@pytest.fixture(scope="module")
def api(server: ServerProcess) -> Api:
    return Api(server.kubeconfig)


def pod(name: str, node: str, *, size_limit: str = "", resources: Object | None = None) -> Object:
    container = {
        "name": "main",
        "image": "python",
        "command": ["python3", "-c", SCRIPT],
        "resources": resources or {},
        "volumeMounts": [{"name": "work", "mountPath": "/work"}],
    }
    volume = {"name": "work", "emptyDir": {"sizeLimit": size_limit} if size_limit else {}}
    spec = {
        "restartPolicy": "Never",
        "nodeName": node,
        "containers": [container],
        "volumes": [volume],
    }
    return {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name}, "spec": spec}


def until(api: Api, name: str, holds: Callable[[Object], Any], seconds: float) -> Object:
    deadline = time.monotonic() + seconds
    while True:
        current = api.ask("GET", f"{PODS}/{name}").object
        if holds(current["status"]):
            return current["status"]  # type: ignore[no-any-return]
        assert time.monotonic() < deadline, current["status"]
        time.sleep(0.1)


def is_running(status: Object) -> bool:
    return status.get("phase") == "Running"


def has_failed(status: Object) -> bool:
    return status.get("phase") == "Failed"


def disruption(status: Object) -> Object | None:
    targets = [each for each in status["conditions"] if each["type"] == "DisruptionTarget"]
    return targets[0] if targets else None


@pytest.fixture(scope="module")
def low(server: ServerProcess, api: Api) -> Iterator[dict[str, AgentProcess]]:
    """Three nodes, each with one scarce resource since a pod runs there."""
    with contextlib.ExitStack() as stack:
        nodes = {
            name: stack.enter_context(agents.joined(server, name, "--accept-all-pods"))
            for name in LOW
        }
        for name in LOW:
            api.ask("POST", PODS, pod(name, name))
        for name in LOW:
            until(api, name, is_running, PATIENCE_SECONDS)
        for name, agent in nodes.items():
            agent.kill()
            agent.command += ["--eviction-hard", f"{LOW[name][0]}<100.0%"]
            agent.start()
        yield nodes


def true_conditions(api: Api, node: str) -> set[str]:
    conditions = api.get(f"/api/v1/nodes/{node}")["status"]["conditions"]
    return {each["type"] for each in conditions if each["status"] == "True"}


@pytest.mark.parametrize("name", LOW)
def test_a_pod_on_a_node_that_is_low_is_evicted(
    low: dict[str, AgentProcess], api: Api, name: str
) -> None:
    """behaviour D6.1, D6.3, F."""
    _, condition, resource = LOW[name]
    status = until(api, name, has_failed, LOOK_SECONDS)
    assert status["reason"] == "Evicted"
    text = f"The node was low on resource: {resource}. Threshold quantity: "
    assert status["message"].startswith(text)
    assert status["message"].endswith(". ")
    target = disruption(status)
    assert target is not None
    assert (target["reason"], target["message"]) == ("TerminationByKubelet", status["message"])
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143
    # The node reports this in the next status, which may come after the pod's.
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (true := true_conditions(api, name)) != {condition, "Ready"}:
        assert time.monotonic() < deadline, true
        time.sleep(0.1)


@pytest.mark.parametrize("name", LOW)
def test_a_node_that_is_low_turns_pods_away(
    low: dict[str, AgentProcess], api: Api, name: str
) -> None:
    """KEP-3329, "Pod admission error"; behaviour D6.5."""
    until(api, name, has_failed, LOOK_SECONDS)
    api.ask("POST", PODS, pod(f"late-{name}", name))
    status = until(api, f"late-{name}", has_failed, PATIENCE_SECONDS)
    assert status["reason"] == "Evicted"
    assert status["message"] == f"Pod was rejected: The node had condition: [{LOW[name][1]}]. "
    assert "containerStatuses" not in status


def test_a_pod_that_takes_more_disk_than_it_may_is_evicted_and_seen_as_evicted(
    server: ServerProcess, api: Api, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """behaviour D6, the rows of limits: no disruption."""
    with agents.joined(server, "small", "--accept-all-pods"):
        limits = {"limits": {"ephemeral-storage": "1Mi"}}
        api.ask("POST", PODS, pod("volume", "small", size_limit="2Mi"))
        api.ask("POST", PODS, pod("whole", "small", resources=limits))
        volume = until(api, "volume", has_failed, LOOK_SECONDS + PATIENCE_SECONDS)
        assert volume["message"] == 'Usage of EmptyDir volume "work" exceeds the limit "2Mi". '
        whole = until(api, "whole", has_failed, LOOK_SECONDS)
        assert whole["message"] == (
            "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. "
        )
        for status in (volume, whole):
            assert (status["reason"], disruption(status)) == ("Evicted", None)
        kubectl = Kubectl(server.kubeconfig, tmp_path_factory.mktemp("home"))
        deadline = time.monotonic() + PATIENCE_SECONDS
        while "Evicted" not in (events := kubectl("get", "events")):
            assert time.monotonic() < deadline, events
