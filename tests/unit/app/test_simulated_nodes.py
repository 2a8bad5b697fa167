# SPDX-License-Identifier: Apache-2.0
"""`refloat agent --simulated-nodes`: what is said of gates and waits holds for each node."""

from pathlib import Path
from typing import Any

import pytest

from refloat.app import simulated_nodes, timings
from refloat.runtime.manager import Manager
from tests.unit.cli.test_main import run

KUBECONFIG = """
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
"""


class FleetParts:
    """What a fleet is made of; nothing of it runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._monkeypatch = monkeypatch
        self._file = folder / "kubeconfig"
        self._file.write_text(KUBECONFIG)
        self.members: list[Any] = []
        self.more: dict[str, Any] = {}
        monkeypatch.setattr(simulated_nodes, "Fleet", self._fleet)
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
def parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FleetParts:
    return FleetParts(monkeypatch, tmp_path)


def test_simulated_nodes_are_as_kubernetes_has_them(parts: FleetParts) -> None:
    assert parts.agent() == 0
    assert [each.settings.name for each in parts.members] == ["node-0", "node-1"]
    assert {each.settings.lease_seconds for each in parts.members} == {
        timings.KUBERNETES.node.lease_seconds
    }
    assert parts.more["job_gates"].pod_disruption_conditions
    assert not parts.more["force_eviction"]


def test_simulated_nodes_go_by_the_gates(parts: FleetParts) -> None:
    gates = "PodDisruptionConditions=false,TaintForceEviction=true"
    assert parts.agent("--feature-gates", gates) == 0
    assert not parts.more["job_gates"].pod_disruption_conditions
    assert parts.more["force_eviction"]


def test_simulated_nodes_beat_fast(parts: FleetParts) -> None:
    assert parts.agent("--fast") == 0
    beats = {(each.settings.lease_seconds, each.settings.beat_seconds) for each in parts.members}
    fast = timings.FAST.node
    assert beats == {(fast.lease_seconds, fast.beat_seconds)}


def test_a_gate_that_there_is_not_is_refused(
    parts: FleetParts, capsys: pytest.CaptureFixture[str]
) -> None:
    assert parts.agent("--feature-gates", "Bogus=true") == 2
    assert "unknown feature gate 'Bogus'" in capsys.readouterr().err
