# SPDX-License-Identifier: Apache-2.0
"""One server for the tests of a worker, and a separate namespace for each test.

With REFLOAT_E2E_KUBECONFIG the tests that need no server of their own ask
another cluster instead: what holds here must hold there.
"""

import itertools
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from refloat.base.clock import RealClock
from refloat.base.rand import Rand
from refloat.scenario.cluster import connected
from refloat.scenario.namespace import ScenarioNamespace, opened
from tests.e2e import cluster
from tests.e2e.cluster import Api, Kubectl, ServerProcess
from tests.e2e.node_cluster import processes

ELSEWHERE = "REFLOAT_E2E_KUBECONFIG"

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of a server that all tests of this worker share."""
    if ELSEWHERE in os.environ:
        yield Path(os.environ[ELSEWHERE])
        return
    with cluster.serving(tmp_path_factory.mktemp("shared") / "data") as server:
        yield server.kubeconfig
        assert server.end() == 0


@pytest.fixture(scope="session")
def api(kubeconfig: Path) -> Api:
    return Api(kubeconfig)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which kubectl keeps the discovery documents."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def namespace(api: Api) -> Iterator[str]:
    """A namespace, and a name for what is in none."""
    name = f"e2e-{os.getpid()}-{next(_numbers)}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    api.create("/api/v1/namespaces", body)
    yield name
    api.ask("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
def kubectl(kubeconfig: Path, home: Path, namespace: str) -> Kubectl:
    return Kubectl(kubeconfig, home, namespace)


@pytest.fixture
async def ns(server: ServerProcess) -> AsyncIterator[ScenarioNamespace]:
    """A scenario's namespace on the server of the module."""
    clock, rand = RealClock(), Rand()
    async with connected(server.kubeconfig, clock, rand) as on, opened(on, "e2e") as ns:
        yield ns


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A data directory, of which no process is left."""
    data_dir = tmp_path / "data"
    yield data_dir
    for pid in processes(data_dir):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def host_folder(tmp_path: Path) -> Path:
    """A folder that all pods see."""
    tmp_path.chmod(0o755)
    folder = tmp_path / "host_folder"
    folder.mkdir()
    folder.chmod(0o777)
    return folder
