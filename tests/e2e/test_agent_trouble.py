# SPDX-License-Identifier: Apache-2.0
"""An agent in trouble: refused credentials, another agent with the same name, a bad link."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from refloat.app import tokens
from tests.e2e import agents, cluster, holding_proxy
from tests.e2e.agents import AgentProcess
from tests.e2e.cluster import Api, Object, ServerProcess
from tests.e2e.node_cluster import NODES, PODS, is_ready, phase, pod, processes, until, wait

SCRIPT = "while :; do date +%N > /v/$NAME; sleep 0.05; done"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with cluster.serving(tmp_path / "data", "--controllers", "*", "--fast") as server:
        yield server


def ticking(name: str, host_folder: Path) -> Object:
    container = {
        "env": [{"name": "NAME", "value": name}],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    }
    volumes = [{"name": "v", "hostPath": {"path": str(host_folder)}}]
    return pod(name, SCRIPT, container=container, volumes=volumes, nodeName="n1")


def ticks_on(file: Path) -> None:
    before = file.read_text()
    wait(lambda: file.read_text() not in ("", before), f"{file.name} does nothing")


def test_an_agent_whose_token_is_revoked_keeps_its_pods_and_says_so_once(
    server: ServerProcess, host_folder: Path
) -> None:
    with agents.joined(server, "n1", "--accept-all-pods", "--fast") as node:
        api = Api(server.kubeconfig)
        until(api, f"{NODES}/n1", is_ready)
        for name in "abc":
            api.create(PODS, ticking(name, host_folder))
        for name in "abc":
            until(api, f"{PODS}/{name}", phase("Running"))
        token = server.data_dir / "nodes" / "n1.token"
        good = token.read_text()
        assert server.end() == 0
        token.unlink()
        tokens.node_token(server.data_dir, "n1")
        refusal = "does not accept our credentials; retrying: "
        with cluster.serving(server.data_dir, "--controllers", "*", "--fast") as other:
            wait(lambda: refusal in node.errors(), "it says nothing")
            lines = node.errors().count("\n")
            api = Api(other.kubeconfig)
            until(api, f"{NODES}/n1", lambda each: not is_ready(each))
            assert node.errors().count("\n") == lines
            assert node.process.poll() is None
            for name in "abc":
                ticks_on(host_folder / name)
            assert other.end() == 0
        token.write_text(good)
        with cluster.serving(server.data_dir, "--controllers", "*", "--fast") as again:
            until(Api(again.kubeconfig), f"{NODES}/n1", is_ready)
            wait(lambda: "accepts our credentials again" in node.errors(), "it does not say so")
            for name in "abc":
                ticks_on(host_folder / name)
    assert node.errors().count(refusal) == 1


LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"


def test_an_agent_whose_renewal_arrives_after_it_gave_up_on_it_keeps_its_pods(
    server: ServerProcess, host_folder: Path
) -> None:
    """A wire that holds all requests of the agent, and delivers the old ones later."""
    access = agents.kubeconfig(server, "n1")
    document = yaml.safe_load(access.read_text())
    with holding_proxy.before(document["clusters"][0]["cluster"]["server"]) as proxy:
        document["clusters"][0]["cluster"]["server"] = proxy.address
        access.write_text(yaml.safe_dump(document))
        flags = ("--accept-all-pods", "--fast")
        with agents.running(server.data_dir, access, "n1", *flags) as node:
            api = Api(server.kubeconfig)
            until(api, f"{NODES}/n1", is_ready)
            api.create(PODS, ticking("a", host_folder))
            until(api, f"{PODS}/a", phase("Running"))
            renewed = api.get(LEASE)["spec"]["renewTime"]
            until(api, LEASE, lambda lease: lease["spec"]["renewTime"] != renewed)
            proxy.hold()
            failure = "node-heartbeat n1: "
            wait(lambda: proxy.held and node.errors().count(failure) >= 3, "no renewal failed")
            times = {api.get(LEASE)["spec"]["renewTime"]}
            proxy.deliver()
            for _ in range(4):  # the late one, and then those of a node that is well
                lease = until(api, LEASE, lambda each: each["spec"]["renewTime"] not in times)
                times.add(lease["spec"]["renewTime"])
            until(api, f"{NODES}/n1", is_ready)
            assert node.process.poll() is None
            ticks_on(host_folder / "a")
            (status,) = api.get(f"{PODS}/a")["status"]["containerStatuses"]
            assert (status["restartCount"], "running" in status["state"]) == (0, True)


def elsewhere(server: ServerProcess, folder: Path) -> AgentProcess:
    """An agent of the same name on another machine, as far as that can be had here."""
    folder.mkdir()
    access = agents.kubeconfig(server, "n1")
    return AgentProcess(folder / "data", access, "n1", "--accept-all-pods", "--fast")


def test_a_second_agent_with_one_name_is_refused_and_starts_nothing(
    server: ServerProcess, host_folder: Path, tmp_path: Path
) -> None:
    with agents.joined(server, "n1", "--accept-all-pods", "--fast") as node:
        api = Api(server.kubeconfig)
        ready = until(api, f"{NODES}/n1", is_ready)
        api.create(PODS, ticking("a", host_folder))
        until(api, f"{PODS}/a", phase("Running"))
        at = ready["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        second = elsewhere(server, tmp_path / "elsewhere")
        assert second._wait() == 2
        want = f"refloat: another agent runs node n1, at 127.0.0.1:{at}: stop it, or choose"
        assert want in second.errors()
        assert list((second.folder / "pods").iterdir()) == []
        wait(lambda: not processes(tmp_path / "elsewhere" / "data"), "its keeper is left")
        assert node.process.poll() is None
        ticks_on(host_folder / "a")
        assert api.get(f"{PODS}/a")["status"]["phase"] == "Running"


def test_an_agent_that_was_replaced_while_it_slept_ends_with_its_pods(
    server: ServerProcess, host_folder: Path, tmp_path: Path
) -> None:
    with agents.joined(server, "n1", "--accept-all-pods", "--fast") as node:
        api = Api(server.kubeconfig)
        until(api, f"{NODES}/n1", is_ready)
        api.create(PODS, ticking("a", host_folder))
        until(api, f"{PODS}/a", phase("Running"))
        os.kill(node.process.pid, signal.SIGSTOP)
        second = elsewhere(server, tmp_path / "elsewhere")
        try:
            current = until(api, f"{PODS}/a", phase("Failed"))
            (status,) = current["status"]["containerStatuses"]
            assert status["state"]["terminated"]["reason"] == "ContainerStatusUnknown"
            assert "was run by another agent; it takes 4 s" in second.errors()
            os.kill(node.process.pid, signal.SIGCONT)
            assert node._wait() == 2
            assert "refloat: another agent runs node n1, at" in node.errors()
            assert second.end() == 0
        finally:
            second.kill()
            second.clear()
