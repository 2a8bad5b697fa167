# SPDX-License-Identifier: Apache-2.0
"""What an agent starts, when its watch is behind what others did, or when it is not root."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from refloat.agent.runtime import StartError
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.apiserver.inprocess import InProcess
from refloat.app import agent, supervision, tokens
from refloat.app.agent import Settings, WholePods
from refloat.client import errors, kinds, kubeconfig
from refloat.client.local import LocalClient
from refloat.sim.run import Sim, run
from tests import builders
from tests.simulation import api_program

PODS = "/api/v1/namespaces/default/pods"


async def created(api: InProcess) -> tuple[Object, Pod]:
    """A pod that is bound and not gone before its time, and what an agent has seen of it."""
    given = builders.pod(node="n1", spec={"terminationGracePeriodSeconds": 30})
    made = msgspec.json.decode(await api.call("POST", PODS, msgspec.json.encode(given)))
    return made, msgspec.convert(made, Pod)


async def fail(api: InProcess) -> None:
    await LocalClient(api, field_manager="other").patch(
        kinds.PODS,
        "p",
        {"status": {"phase": "Failed"}},
        patch_type="strategic",
        namespace="default",
        subresource="status",
    )


async def delete(api: InProcess) -> None:
    await api.call("DELETE", f"{PODS}/p", b"{}")


async def replace(api: InProcess) -> None:
    await api.call("DELETE", f"{PODS}/p", b'{"gracePeriodSeconds": 0}')
    await created(api)


@pytest.mark.parametrize(
    ("meanwhile", "want", "reason"),
    [
        pytest.param(fail, "has ended, or is about to", "", id="called Failed"),
        pytest.param(delete, "has ended, or is about to", "", id="terminating"),
        pytest.param(replace, "is gone", "CreateContainerError", id="another of its name"),
    ],
)
def test_nothing_is_started_of_a_pod_that_ended_unheard(
    meanwhile: Callable[[InProcess], Awaitable[None]], want: str, reason: str
) -> None:
    """behaviour D4.1, D8.2"""

    async def program(sim: Sim) -> None:
        async with api_program.serving(sim) as api:
            client = LocalClient(api, field_manager="agent")
            whole, seen = await created(api)
            pods = WholePods(client, sim.clock, lambda _: True)
            assert await pods(seen) == whole
            await meanwhile(api)
            with pytest.raises(StartError, match=want) as caught:
                await pods(seen)
            assert caught.value.reason == reason

    run(program, seed=0)


def seen_pod(uid: str = "u", *, invited: bool = False) -> Pod:
    spec: Object = {"containers": [{"name": "main", "image": "x"}]}
    if invited:
        spec["tolerations"] = [{"key": agent.TAINT, "operator": "Exists"}]
    return msgspec.convert({"metadata": {"name": "p", "uid": uid}, "spec": spec}, Pod)


def refusals(settings: Settings, pod: Pod) -> list[str]:
    found = (check(pod) for check in agent._checks(settings, None))
    return [each.reason for each in found if each is not None]


@pytest.mark.parametrize(
    ("uid", "trust", "accept_all", "want"),
    [
        pytest.param(1000, False, True, ["PodTrust"], id="not root, not trusted"),
        pytest.param(1000, False, False, ["PodTrust"], id="not root, not trusted, with a taint"),
        pytest.param(1000, True, True, [], id="not root, trusted"),
        pytest.param(0, False, True, [], id="root"),
    ],
)
def test_an_agent_without_root_refuses_pods_that_are_not_trusted(
    monkeypatch: pytest.MonkeyPatch, uid: int, trust: bool, accept_all: bool, want: list[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    settings = Settings("n1", Path("/x"), accept_all_pods=accept_all, trust_pods=trust)
    assert refusals(settings, seen_pod(invited=True)) == want
    tainted = agent._node(settings, {}, 0).taints != ()
    assert tainted == (bool(want) or not accept_all)  # else pods would come only to fail


def test_trust_is_no_invitation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    settings = Settings("n1", Path("/x"), trust_pods=True)
    assert refusals(settings, seen_pod()) == ["TaintToleration"]
    assert refusals(settings, seen_pod(invited=True)) == []


def test_containers_see_neither_the_data_directory_nor_the_kubeconfig() -> None:
    settings = Settings("n1", Path("/data/nodes/n1"), kubeconfig=Path("/home/me/config"))
    found = agent._processes(settings, Path("/data/volumes"))
    assert found.hidden == (Path("/data"), Path("/home/me/config"))
    assert found.shared == Path("/data/volumes")


@pytest.mark.parametrize(
    ("environ", "want"),
    [
        pytest.param({"KUBECONFIG": "/a/b:/c"}, ["/a/b", "/c"], id="those of KUBECONFIG"),
        pytest.param({"HOME": "/home/me"}, ["/own", "/home/me/.kube/config"], id="the usual ones"),
    ],
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
    assert "--trust-pods" in supervision.command(tmp_path, "https://x", "n1", [])


class _Outage(LocalClient):
    """An API server that does not answer when a test says so."""

    is_away = False

    async def get(self, kind: Any, name: str, **more: Any) -> Any:
        if self.is_away:
            raise errors.Unreachable("away")
        return await super().get(kind, name, **more)


@pytest.mark.parametrize(
    ("was_read", "is_known"),
    [
        pytest.param(True, True, id="it was read before"),
        pytest.param(False, True, id="it was never read"),
        pytest.param(True, False, id="it left the node meanwhile"),
    ],
)
def test_without_an_api_server_a_pod_is_as_it_was_last_read(was_read: bool, is_known: bool) -> None:
    async def program(sim: Sim) -> None:
        async with api_program.serving(sim) as api:
            client = _Outage(api, field_manager="agent")
            whole, seen = await created(api)
            pods = WholePods(client, sim.clock, lambda _: is_known)
            if was_read:
                await pods(seen)
            if not is_known:  # then the next read of any pod forgets it
                other = {**builders.pod("other", node="n1")}
                made = msgspec.json.decode(await api.call("POST", PODS, msgspec.json.encode(other)))
                await pods(msgspec.convert(made, Pod))
            client.is_away = True
            if was_read and is_known:
                assert await pods(seen) == whole
            else:
                with pytest.raises(errors.Unreachable):
                    await pods(seen)

    run(program, seed=0)
