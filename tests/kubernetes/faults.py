# SPDX-License-Identifier: Apache-2.0
"""Faults on a real control plane: etcd stops, and answers of the API server get lost.

A separate control plane, because other suites must not meet the faults. Nodes and
`refloat manager` reach the server over links (`tests.faults`), and the checks are the same.
pytest does not collect this module: `python -m tests.kubernetes` runs it, and names the
programs with `REFLOAT_TEST_BINARIES`.
"""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest

from refloat.app import certificates
from refloat.bench import control_plane
from tests.e2e.cluster import Object
from tests.e2e.node_cluster import processes
from tests.faults import fault_scenarios
from tests.faults.processes import FaultCluster, wait
from tests.faults.proxy import ProxyLink
from tests.faults.workload import workload

pytestmark = pytest.mark.timeout(900)

SEED = 7

# Longer than a request waits (30 s), twice, so that renewals of nodes get no answer.
FROZEN_SECONDS = 75.0


class KubernetesCluster(FaultCluster):
    """The same processes, on etcd, kube-apiserver and their controllers."""

    def _add_server(self) -> tuple[Path, Path]:
        self._stack = ExitStack()
        binaries = Path(os.environ["REFLOAT_TEST_BINARIES"])
        settings = control_plane.ControlPlaneSettings(
            binaries, self.folder / "control-plane", self._port
        )
        plane = self._stack.enter_context(control_plane.running(settings))
        for name, program in (("etcd", control_plane.ETCD), ("server", control_plane.APISERVER)):
            daemon = plane.daemons[program]
            process = daemon._process
            self._add(name, lambda: None, lambda process=process: process, daemon.tail)  # type: ignore[misc]
        return plane.kubeconfig, self.folder / "control-plane" / "pki"

    def _link_of_node(self, name: str) -> tuple[ProxyLink, Object]:
        """The link has the node's certificate: TLS ends there."""
        user, now = f"system:node:{name}", datetime.now(UTC)
        client = certificates.ensure_client(self.pki, now, user=user, group="system:nodes")
        return self.link(client), {}

    def close(self) -> None:
        super().close()
        self._stack.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultCluster]:
    folder = tmp_path_factory.mktemp("faults")
    running = KubernetesCluster(folder, manager=True)
    try:
        running.heal()
        yield running
    finally:
        running.close()
    wait(lambda: not processes(folder / "data"), "the processes of the nodes are gone")


@pytest.mark.parametrize(
    "name",
    [
        "the_answers_to_pod_creations_are_lost",
        "the_answers_to_pod_creations_are_errors",
        "the_answers_to_pod_creations_are_held_for_32_seconds",
        "jobs_are_deleted_while_the_manager_hears_nothing",
    ],
)
def test_no_pod_is_counted_or_reported_twice_when(name: str, cluster: FaultCluster) -> None:
    with workload(cluster, name) as load:
        fault_scenarios.SCENARIOS[name].play(load, SEED)


def test_an_etcd_that_stops_for_longer_than_requests_wait_ends_no_pod(
    cluster: FaultCluster,
) -> None:
    with workload(cluster, "etcd-stops") as load:
        load.every_event = False  # events of this time may be lost
        load.submit("a")
        load.running(2)
        etcd = cluster.components["etcd"]
        etcd.freeze()
        time.sleep(FROZEN_SECONDS)
        etcd.thaw()
