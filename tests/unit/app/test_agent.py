# SPDX-License-Identifier: Apache-2.0
"""What an agent starts, when its watch is behind what others did, or when it is not root."""

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from refloat.agent.fleet import Fleet
from refloat.agent.runtime import StartError
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.apiserver.local_server import LocalConnection
from refloat.app import agent, agent_supervisor, tokens
from refloat.app.agent import AgentSettings, WholePods
from refloat.app.node_faults import CUT, MEND
from refloat.client import errors, kinds, kubeconfig
from refloat.client.local import LocalClient
from refloat.sim import api_server
from refloat.sim.run import Sim
from tests import builders
from tests.cases import cases
from tests.virtual import virtual

PODS = "/api/v1/namespaces/default/pods"


async def created(api: LocalConnection) -> tuple[Object, Pod]:
    """A pod that is bound and not gone before its time, and what an agent has seen of it."""
    body = builders.pod(node="n1", spec={"terminationGracePeriodSeconds": 30})
    answer = msgspec.json.decode(await api.call("POST", PODS, msgspec.json.encode(body)))
    return answer, msgspec.convert(answer, Pod)


async def fail(api: LocalConnection) -> None:
    await LocalClient(api, field_manager="other").patch(
        kinds.PODS,
        "p",
        {"status": {"phase": "Failed"}},
        patch_type="strategic",
        namespace="default",
        subresource="status",
    )


async def delete(api: LocalConnection) -> None:
    await api.call("DELETE", f"{PODS}/p", b"{}")


async def replace(api: LocalConnection) -> None:
    await api.call("DELETE", f"{PODS}/p", b'{"gracePeriodSeconds": 0}')
    await created(api)


@cases(
    "meanwhile want reason",
    {
        "called Failed": (fail, "has ended, or is about to", ""),
        "terminating": (delete, "has ended, or is about to", ""),
        "another of its name": (replace, "is gone", "CreateContainerError"),
    },
)
@virtual()
async def test_nothing_is_started_of_a_pod_that_ended_unheard(
    sim: Sim, meanwhile: Callable[[LocalConnection], Awaitable[None]], want: str, reason: str
) -> None:
    """behaviour D4.1, D8.2"""
    async with api_server.serve(sim) as api:
        client = LocalClient(api, field_manager="agent")
        whole, pod = await created(api)
        pods = WholePods(client, sim.clock, lambda _: True)
        assert await pods(pod) == whole
        await meanwhile(api)
        with pytest.raises(StartError, match=want) as error:
            await pods(pod)
        assert error.value.reason == reason


def seen_pod(uid: str = "u", *, invited: bool = False) -> Pod:
    spec: Object = {"containers": [{"name": "main", "image": "x"}]}
    if invited:
        spec["tolerations"] = [{"key": agent.TAINT, "operator": "Exists"}]
    return msgspec.convert({"metadata": {"name": "p", "uid": uid}, "spec": spec}, Pod)


def refusals(settings: AgentSettings, pod: Pod) -> list[str]:
    refusals = (check(pod) for check in agent._checks(settings, None))
    return [each.reason for each in refusals if each is not None]


@cases(
    "uid trust accept_all want",
    {
        "not root, not trusted": (1000, False, True, ["PodTrust"]),
        "not root, not trusted, with a taint": (1000, False, False, ["PodTrust"]),
        "not root, trusted": (1000, True, True, []),
        "root": (0, False, True, []),
    },
)
def test_an_agent_without_root_refuses_pods_that_are_not_trusted(
    monkeypatch: pytest.MonkeyPatch, uid: int, trust: bool, accept_all: bool, want: list[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    settings = AgentSettings("n1", Path("/x"), accept_all_pods=accept_all, trust_pods=trust)
    assert refusals(settings, seen_pod(invited=True)) == want
    tainted = agent._node(settings, {}, 0).taints != ()
    assert tainted == (bool(want) or not accept_all)  # else pods would come only to fail


def test_trust_is_no_invitation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    settings = AgentSettings("n1", Path("/x"), trust_pods=True)
    assert refusals(settings, seen_pod()) == ["TaintToleration"]
    assert refusals(settings, seen_pod(invited=True)) == []


def test_containers_see_neither_the_data_directory_nor_the_kubeconfig() -> None:
    settings = AgentSettings("n1", Path("/data/nodes/n1"), kubeconfig=Path("/home/me/config"))
    processes = agent._processes(settings, Path("/data/volumes"))
    assert processes.hidden == (Path("/data"), Path("/home/me/config"))
    assert processes.shared == Path("/data/volumes")


@cases(
    "environ want",
    {
        "those of KUBECONFIG": ({"KUBECONFIG": "/a/b:/c"}, ["/a/b", "/c"]),
        "the usual ones": ({"HOME": "/home/me"}, ["/own", "/home/me/.kube/config"]),
    },
)
def test_credentials_that_the_agent_finds_by_itself_are_hidden_too(
    environ: dict[str, str], want: list[str]
) -> None:
    files = kubeconfig.credential_files(environ=environ, service_account=Path("/own"))
    assert files == [Path(each) for each in want]


def test_the_agents_of_an_embedded_cluster_trust_their_pods(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "pki").mkdir()
    (tmp_path / "nodes").mkdir()
    (tmp_path / "pki" / "ca.crt").write_text("authority")
    monkeypatch.setattr(tokens, "node_token", lambda *_: "t")
    assert "--trust-pods" in agent_supervisor.command(tmp_path, "https://x", "n1", [])


class _Outage(LocalClient):
    """An API server that does not answer when a test says so."""

    is_away = False

    async def get(self, kind: Any, name: str, **more: Any) -> Any:
        if self.is_away:
            raise errors.Unreachable("away")
        return await super().get(kind, name, **more)


@cases(
    "was_read is_known",
    {
        "it was read before": (True, True),
        "it was never read": (False, True),
        "it left the node meanwhile": (True, False),
    },
)
@virtual()
async def test_without_an_api_server_a_pod_is_as_it_was_last_read(
    sim: Sim, was_read: bool, is_known: bool
) -> None:
    async with api_server.serve(sim) as api:
        client = _Outage(api, field_manager="agent")
        whole, pod = await created(api)
        pods = WholePods(client, sim.clock, lambda _: is_known)
        if was_read:
            await pods(pod)
        if not is_known:  # then the next read of any pod forgets it
            other = {**builders.pod("other", node="n1")}
            answer = msgspec.json.decode(await api.call("POST", PODS, msgspec.json.encode(other)))
            await pods(msgspec.convert(answer, Pod))
        client.is_away = True
        if was_read and is_known:
            assert await pods(pod) == whole
        else:
            with pytest.raises(errors.Unreachable):
                await pods(pod)


class _Faults:
    """A fleet that only notes the faults."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []

    def fail(self, name: str, fault: str) -> None:
        self.calls.append((name, fault))

    def heal(self, name: str) -> None:
        self.calls.append((name, "heal"))


async def test_a_cut_that_is_pending_at_the_start_comes_before_any_request() -> None:
    """No turn of the event loop lies between the start and the fault."""
    fleet = _Faults()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (CUT,))
    try:
        signal.pthread_kill(threading.get_ident(), CUT)
        agent._on_faults(cast("Fleet", fleet), "n1")
        assert fleet.calls == [("n1", "partition")]
        await asyncio.sleep(0)
        assert fleet.calls == [("n1", "partition")]
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number in (CUT, MEND):
            asyncio.get_running_loop().remove_signal_handler(number)
