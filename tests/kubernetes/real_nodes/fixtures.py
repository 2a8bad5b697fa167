# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin: one cluster with real nodes for the session, a namespace for each test."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from refloat.base.rand import Rand
from tests.e2e.cluster import Kubectl
from tests.e2e.node_cluster import processes
from tests.kubernetes.joining import Place
from tests.kubernetes.real_nodes import cluster
from tests.kubernetes.real_nodes.cluster import RealCluster

SILENCES = ("frozen", "killed", "cut", "off")
"""Each silence has a node of this name."""

SPARE = "spare"
"""A node that stays healthy."""

CONTROLLERS = {"kubernetes": "", "refloat": "refloat.dev/job-controller"}
"""`spec.managedBy` of both Job controllers."""


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    folder = tmp_path_factory.mktemp("real")
    with cluster.running(folder, cluster.binaries(), [*SILENCES, SPARE]) as running:
        yield running
    assert processes(folder) == {}
    shutil.rmtree(folder / "nodes")


@contextmanager
def namespace(real: RealCluster, folder: Path) -> Iterator[Place]:
    """A new namespace that is ready for pods, until the end of the block."""
    kubectl = Kubectl(real.plane.kubeconfig, folder, f"kubelets-{Rand().suffix()}")
    place = Place(real.api, kubectl, list(real.nodes))
    place.prepare()
    yield place
    real.api.ask("DELETE", f"/api/v1/namespaces/{kubectl.namespace}")


@pytest.fixture
def place(real: RealCluster, tmp_path: Path) -> Iterator[Place]:
    with namespace(real, tmp_path) as place:
        yield place
