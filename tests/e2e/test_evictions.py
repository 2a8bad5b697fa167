# SPDX-License-Identifier: Apache-2.0
"""Nodes of real processes that run low: KEP-3329's "Node-pressure eviction", and the limits.

The machine is not filled: the thresholds are raised above the free amounts, under pods
that run already.
"""

import contextlib
from collections.abc import Iterator

import pytest

from tests import builders
from tests.e2e import agents, cluster
from tests.e2e.agents import AgentProcess
from tests.e2e.cluster import PATIENCE_SECONDS, Api, Kubectl, Object, ServerProcess
from tests.e2e.node_cluster import PODS, phase, until, wait

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


def create(
    api: Api, name: str, node: str, *, size_limit: str = "", resources: Object | None = None
) -> None:
    container = {
        "name": "main",
        "image": "python",
        "command": ["python3", "-c", SCRIPT],
        "resources": resources or {},
        "volumeMounts": [{"name": "work", "mountPath": "/work"}],
    }
    volume = {"name": "work", "emptyDir": {"sizeLimit": size_limit} if size_limit else {}}
    spec = {"restartPolicy": "Never", "containers": [container], "volumes": [volume]}
    api.create(PODS, builders.pod(name, node=node, spec=spec))


def status(api: Api, name: str, want: str, seconds: float = PATIENCE_SECONDS) -> Object:
    """The status of a pod, once the pod is in this phase."""
    pod = until(api, f"{PODS}/{name}", phase(want), seconds)
    return pod["status"]  # type: ignore[no-any-return]


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
            create(api, name, name)
        for name in LOW:
            status(api, name, "Running")
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
    end = status(api, name, "Failed", LOOK_SECONDS)
    assert end["reason"] == "Evicted"
    text = f"The node was low on resource: {resource}. Threshold quantity: "
    assert end["message"].startswith(text)
    assert end["message"].endswith(". ")
    target = disruption(end)
    assert target is not None
    assert (target["reason"], target["message"]) == ("TerminationByKubelet", end["message"])
    assert end["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143
    # The node reports this in the next status, which may come after the pod's.
    wait(lambda: true_conditions(api, name) == {condition, "Ready"}, f"no {condition}")


@pytest.mark.parametrize("name", LOW)
def test_a_node_that_is_low_turns_pods_away(
    low: dict[str, AgentProcess], api: Api, name: str
) -> None:
    """KEP-3329, "Pod admission error"; behaviour D6.5."""
    status(api, name, "Failed", LOOK_SECONDS)
    create(api, f"late-{name}", name)
    end = status(api, f"late-{name}", "Failed")
    assert end["reason"] == "Evicted"
    assert end["message"] == f"Pod was rejected: The node had condition: [{LOW[name][1]}]. "
    assert "containerStatuses" not in end


def test_a_pod_that_takes_more_disk_than_it_may_is_evicted_and_seen_as_evicted(
    server: ServerProcess, api: Api, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """behaviour D6, the rows of limits: no disruption."""
    with agents.joined(server, "small", "--accept-all-pods"):
        limits = {"limits": {"ephemeral-storage": "1Mi"}}
        create(api, "volume", "small", size_limit="2Mi")
        create(api, "whole", "small", resources=limits)
        volume = status(api, "volume", "Failed", LOOK_SECONDS + PATIENCE_SECONDS)
        assert volume["message"] == 'Usage of EmptyDir volume "work" exceeds the limit "2Mi". '
        whole = status(api, "whole", "Failed", LOOK_SECONDS)
        assert whole["message"] == (
            "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. "
        )
        for each in (volume, whole):
            assert (each["reason"], disruption(each)) == ("Evicted", None)
        kubectl = Kubectl(server.kubeconfig, tmp_path_factory.mktemp("home"))
        wait(lambda: "Evicted" in kubectl("get", "events"), "no event")
