# SPDX-License-Identifier: Apache-2.0
"""Self-fencing on real processes: agents that are frozen, killed or unanswered (KEP-6757)."""

import asyncio
import os
import signal
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from refloat.agent.keeper import process_tree, service
from refloat.agent.process import keeper_client
from refloat.agent.self_fence import KILL_GRACE_SECONDS
from refloat.api import self_fence
from tests.e2e import agents, cluster
from tests.e2e.agents import AgentProcess
from tests.e2e.cluster import PATIENCE_SECONDS, Api, NodeCommands, Object, ServerProcess
from tests.e2e.node_cluster import (
    JOBS,
    NODES,
    PODS,
    is_ready,
    phase,
    pod,
    processes,
    until,
    up,
    wait,
)

SECONDS = 9
"""Nine beats: a busy machine may be late with some of them."""

LONG_SECONDS = 300

ASKS = {self_fence.ANNOTATION: "true"}
FENCE = ("--fast", "--self-fence-seconds", str(SECONDS))

# It ignores SIGTERM, and so do the children, in separate sessions.
DEAF = (
    "trap '' TERM; setsid sh -c \"trap '' TERM; sleep 100 & sleep 100\" & while :; do sleep 1; done"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    data = tmp_path_factory.mktemp("fence") / "data"
    with cluster.serving(data, "--controllers", "*", "--nodes", "0", "--fast") as server:
        yield server


@pytest.fixture
def node(server: ServerProcess, request: pytest.FixtureRequest) -> Iterator[AgentProcess]:
    """A separate node for each test: the earlier ones are lost."""
    name = f"n{zlib.crc32(request.node.name.encode())}"
    with agents.joined(server, name, "--accept-all-pods", *FENCE) as agent:
        yield agent


@pytest.fixture
def pods(api: Api) -> Iterator[None]:
    yield
    for name in ("p", "other"):
        api.ask("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})


@pytest.fixture(scope="module")
def api(server: ServerProcess) -> Api:
    return Api(server.kubeconfig)


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


async def _list(folder: Path) -> Object:
    line = await keeper_client.connect(folder, lambda _: None, lambda _: None)
    try:
        inventory: Object = await line.send("list")
        return inventory
    finally:
        await line.close()


def deadline(node: AgentProcess) -> float:
    """The only deadline of the keeper."""
    (when,) = asyncio.run(_list(node.folder))["deadlines"].values()
    return float(when)


def living(node: AgentProcess, uid: str) -> list[int]:
    """All processes of a pod's containers, with any parent."""
    mark = service.node_mark(str(node.folder))
    pids = process_tree.find_marked(mark)
    ids = [
        each["id"] for each in asyncio.run(_list(node.folder))["containers"] if each["pod"] == uid
    ]
    return [pid for pid in pids if process_tree.mark(pid) in ids]


def start(node: AgentProcess, api: Api, name: str = "p", **meta: Any) -> Object:
    """A deaf pod that runs, from the API."""
    until(api, f"{NODES}/{node.name}", is_ready)
    spec: Object = {"restartPolicy": "Always", "terminationGracePeriodSeconds": 300}
    manifest = pod(name, DEAF, nodeName=node.name, **spec)
    manifest["metadata"] |= meta
    api.create(PODS, manifest)
    return until(api, f"{PODS}/{name}", phase("Running"))


def armed(pod: Object) -> Object | None:
    conditions = [
        each for each in pod["status"]["conditions"] if each["type"] == self_fence.CONDITION
    ]
    return conditions[0] if conditions else None


def dies_at(node: AgentProcess, uid: str, when: float) -> None:
    """Wait until no process is left: at the deadline, not before, and not much later."""
    while True:
        asked_at = now()
        pids = living(node, uid)
        if not pids:
            assert now() >= when
            return
        assert asked_at < when + KILL_GRACE_SECONDS
        time.sleep(0.02)


def ended(api: Api) -> Object:
    """The final status that the agent writes."""
    current = until(api, f"{PODS}/p", phase("Failed"))
    status = current["status"]
    assert status["reason"] == "SelfFenced"
    (container,) = status["containerStatuses"]
    end = container["state"]["terminated"]
    assert (end["exitCode"], end["reason"], container["restartCount"]) == (137, "Fenced", 0)
    assert armed(current) is not None
    return current


def beats(api: Api, node: AgentProcess) -> None:
    """Wait until the agent has renewed its lease twice."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node.name}"
    for _ in range(2):
        before = api.get(path)["spec"]["renewTime"]
        until(api, path, lambda each, before=before: each["spec"]["renewTime"] != before)  # type: ignore[misc]


def extended(node: AgentProcess, times: int = 1) -> float:
    """The deadline, after so many extensions."""
    for _ in range(times):
        before = deadline(node)
        wait(lambda before=before: deadline(node) > before, "nobody moved the deadline")  # type: ignore[misc]
    return deadline(node)


@pytest.mark.usefixtures("pods")
def test_a_frozen_agent_s_pod_is_dead_at_its_deadline_and_not_before(
    node: AgentProcess, api: Api
) -> None:
    other = start(node, api, "other")
    current = start(node, api, annotations=ASKS)
    uid = current["metadata"]["uid"]
    condition = armed(current)
    assert condition is not None
    assert (condition["status"], condition["reason"]) == ("True", "Armed")
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    promise = self_fence.Promise(SECONDS, KILL_GRACE_SECONDS, boot)
    assert self_fence.read(condition["message"]) == promise
    assert armed(other) is None
    extended(node, times=SECONDS + 1)  # the pod lives longer than one deadline
    assert len(living(node, uid)) >= 4
    os.kill(node.process.pid, signal.SIGSTOP)
    when = deadline(node)
    assert when <= now() + SECONDS
    dies_at(node, uid, when)
    assert living(node, other["metadata"]["uid"])
    assert api.get(f"{PODS}/p")["status"]["phase"] == "Running"  # no component knows of the death
    os.kill(node.process.pid, signal.SIGCONT)
    ended(api)
    assert api.get(f"{PODS}/other")["status"]["phase"] == "Running"
    node.kill()
    node.start()
    beats(api, node)
    assert not living(node, uid)


@pytest.mark.usefixtures("pods")
def test_renewals_that_nobody_answers_extend_nothing(
    server: ServerProcess, node: AgentProcess, api: Api
) -> None:
    uid = start(node, api, annotations=ASKS)["metadata"]["uid"]
    extended(node)
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        when = deadline(node)
        dies_at(node, uid, when)
        assert deadline(node) == when
        assert node.process.poll() is None
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    ended(api)


@pytest.mark.usefixtures("pods")
def test_the_next_agent_goes_on_with_the_promise(server: ServerProcess, api: Api) -> None:
    patient = ("--fast", "--self-fence-seconds", str(LONG_SECONDS))
    with agents.joined(server, "restarts", "--accept-all-pods", *patient) as node:
        current = start(node, api, annotations=ASKS)
        node.kill()
        before = deadline(node)
        node.command[-1] = str(SECONDS)  # what was promised holds all the same
        node.start()
        assert before < extended(node) <= now() + LONG_SECONDS
        assert deadline(node) > now() + SECONDS
        assert armed(api.get(f"{PODS}/p")) == armed(current)
        assert living(node, current["metadata"]["uid"])


@pytest.mark.usefixtures("pods")
def test_the_pod_of_a_dead_agent_dies_and_the_next_agent_tells_of_it(
    node: AgentProcess, api: Api
) -> None:
    uid = start(node, api, annotations=ASKS)["metadata"]["uid"]
    node.kill()
    when = deadline(node)
    dies_at(node, uid, when)
    node.start()
    ended(api)
    beats(api, node)
    assert not living(node, uid)


STAMPS = 'while :; do read up _ </proc/uptime; echo "$POD $up" >>/v/$JOB; sleep 0.05; done'


def job(name: str, host_folder: Path, **annotations: str) -> Object:
    """One pod at a time, which logs when it runs, and leaves a lost node soon."""
    container = {
        "name": "main",
        "image": "any",
        "command": ["sh", "-c", STAMPS],
        "env": [
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "JOB", "value": name},
        ],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    }
    toleration = {
        "key": "node.kubernetes.io/unreachable",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 3,  # a node that was only late is back by then
    }
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "tolerations": [toleration],
        "containers": [container],
        "volumes": [{"name": "v", "hostPath": {"path": str(host_folder)}}],
    }
    template = {"metadata": {"labels": {"job": name}, "annotations": annotations}, "spec": spec}
    return {
        "metadata": {"name": name},
        "spec": {"podReplacementPolicy": "Failed", "template": template},
    }


def lives(host_folder: Path, name: str) -> list[tuple[float, float]]:
    """From when to when each pod of a Job was alive, in order."""
    times: dict[str, list[float]] = {}
    for line in (host_folder / name).read_text().splitlines():
        who, when = line.split()
        times.setdefault(who, []).append(float(when))
    return [(min(each), max(each)) for each in times.values()]


CONFIGURATION = """
apiVersion: config.refloat.dev/v1alpha1
kind: Configuration
failureRecoveryPolicy:
  rules:
  - terminatePod:
      podLabelSelector: {matchLabels: {job: fenced}}
      forcefulTerminationGracePeriod: 1s
      requireSelfFence: true
  - terminatePod:
      podLabelSelector: {matchLabels: {job: unfenced}}
      forcefulTerminationGracePeriod: 1s
"""


def test_the_old_process_is_dead_before_its_replacement_starts(tmp_path: Path) -> None:
    """Beside that a Job without self-fencing, whose pods overlap, as the KEP warns."""
    tmp_path.chmod(0o755)
    host, folder, config = tmp_path / "shown", tmp_path / "data", tmp_path / "refloat.yaml"
    host.mkdir()
    host.chmod(0o777)
    config.write_text(CONFIGURATION)
    gate = "FailureRecoveryPolicy=true"
    with up(folder, 2, *FENCE, "--config", str(config), "--feature-gates", gate) as server:
        api = Api(server.kubeconfig)
        _keep_off(api, "n2", True)
        api.create(JOBS, job("fenced", host, **ASKS))
        api.create(JOBS, job("unfenced", host))
        wait(lambda: {"fenced", "unfenced"} <= {each.name for each in host.iterdir()}, "no pods")
        wait(lambda: all(map(armed, _pods(api, "fenced"))), "not armed")
        _keep_off(api, "n2", False)
        NodeCommands(folder).fail("n1", "freeze")
        for name in ("unfenced", "fenced"):
            wait_long(lambda name=name: len(lives(host, name)) == 2, f"{name}: no replacement")  # type: ignore[misc]
        time.sleep(0.5)  # so that one that still lived would be seen to
        (_, ended_at), (started_at, _) = lives(host, "fenced")
        assert ended_at < started_at
        (_, ended_at), (started_at, _) = lives(host, "unfenced")
        assert ended_at > started_at
        server.end()
    assert processes(folder) == {}


def wait_long(holds: Callable[[], object], what: str) -> None:
    """For the promise and the kill grace, and as long again."""
    give_up = time.monotonic() + 2 * (SECONDS + KILL_GRACE_SECONDS) + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < give_up, what
        time.sleep(0.05)


def _pods(api: Api, name: str) -> list[Object]:
    items: list[Object] = api.get(f"{PODS}?labelSelector=job={name}")["items"]
    return items


def _keep_off(api: Api, node: str, is_off: bool) -> None:
    api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": is_off or None}})
