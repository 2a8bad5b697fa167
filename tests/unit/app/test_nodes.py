# SPDX-License-Identifier: Apache-2.0
"""`refloat agent --simulated-nodes`: what is said of gates and waits holds for each node."""

from pathlib import Path
from typing import Any

import pytest

from refloat.app import nodes, timings
from refloat.runtime.manager import Manager
from tests.unit.cli.test_main import run

KUBECONFIG = """
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
"""


class Seen:
    """What a fleet is made of; nothing of it runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._monkeypatch = monkeypatch
        self._file = folder / "kubeconfig"
        self._file.write_text(KUBECONFIG)
        self.members: list[Any] = []
        self.more: dict[str, Any] = {}
        monkeypatch.setattr(nodes, "Fleet", self._fleet)
        monkeypatch.setattr(Manager, "run", self._run)

    def _fleet(self, _client: Any, members: list[Any], _pods: Any, **more: Any) -> object:
        self.members, self.more = members, more
        return object()

    async def _run(self, *_: Any) -> None:
        pass

    def agent(self, *flags: str) -> int:
        where = ["--kubeconfig", str(self._file), "--simulated-nodes", "2"]
        return run(self._monkeypatch, "agent", *where, *flags)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Seen:
    return Seen(monkeypatch, tmp_path)


def test_simulated_nodes_are_as_kubernetes_has_them(seen: Seen) -> None:
    assert seen.agent() == 0
    assert [each.settings.name for each in seen.members] == ["node-0", "node-1"]
    assert {each.settings.lease_seconds for each in seen.members} == {
        timings.KUBERNETES.node.lease_seconds
    }
    assert seen.more["switches"].pod_disruption_conditions
    assert not seen.more["force_eviction"]


def test_simulated_nodes_go_by_the_gates(seen: Seen) -> None:
    gates = "PodDisruptionConditions=false,TaintForceEviction=true"
    assert seen.agent("--feature-gates", gates) == 0
    assert not seen.more["switches"].pod_disruption_conditions
    assert seen.more["force_eviction"]


def test_simulated_nodes_beat_fast(seen: Seen) -> None:
    assert seen.agent("--fast") == 0
    told = {(each.settings.lease_seconds, each.settings.beat_seconds) for each in seen.members}
    fast = timings.FAST.node
    assert told == {(fast.lease_seconds, fast.beat_seconds)}


def test_a_gate_that_there_is_not_is_refused(
    seen: Seen, capsys: pytest.CaptureFixture[str]
) -> None:
    assert seen.agent("--feature-gates", "Bogus=true") == 2
    assert "unknown feature gate 'Bogus'" in capsys.readouterr().err
