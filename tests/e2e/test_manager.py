# SPDX-License-Identifier: Apache-2.0
"""`refloat manager` beside a server that is killed again and again."""

import asyncio
import contextlib
import hashlib
import http.client
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from refloat.api import kinds
from refloat.apiserver import ApiServer, bootstrap
from refloat.apiserver.identity import ADMIN, Call
from refloat.base.clock import RealClock
from refloat.base.gates import Gates
from refloat.base.rand import Rand
from refloat.scenario.cluster import connected
from refloat.scenario.namespace import ScenarioNamespace
from refloat.store.sqlite import SqliteStore
from tests import builders
from tests.e2e.cluster import PATIENCE_SECONDS, REFLOAT, Api, PipeLines, ServerProcess, run, serving
from tests.e2e.node_cluster import wait

PODS = 10_000
ROUNDS = int(os.environ.get("REFLOAT_MANAGER_ROUNDS", "20"))
PATH = "/api/v1/namespaces/default/pods"
PARTIAL = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


async def fill(data_dir: Path, count: int) -> None:
    """Put pods into a data directory, by the server's own rules."""
    data_dir.mkdir()
    clock, rand = RealClock(), Rand(1)
    store = await SqliteStore.open(data_dir / "state.db")
    registry = ApiServer(store, clock, rand, Gates()).registry
    await bootstrap.ensure(registry, clock)
    resource = kinds.of("pods")

    async def create(number: int) -> None:
        obj = builders.pod(f"held-{number:05d}", labels={"app": "held"})
        registry.strategies[resource].default(obj)
        await registry.create(Call(ADMIN, clock.now()), resource, "default", obj)

    for start in range(0, count, 500):
        await asyncio.gather(*(create(number) for number in range(start, start + 500)))
    await store.close()


class ManagerProcess:
    """A running `refloat manager`."""

    def __init__(self, kubeconfig: Path, errors: Path, *flags: str) -> None:
        with errors.open("w") as stream:
            self.process = subprocess.Popen(
                [REFLOAT, "manager", "--kubeconfig", str(kubeconfig), *flags],
                stdout=subprocess.PIPE,
                stderr=stream,
            )
        assert self.process.stdout is not None
        lines = PipeLines(self.process.stdout)
        self.at: dict[str, str] = {}
        assert lines.next().startswith("managing ")
        while len(self.at) < 2:
            what, _, address = lines.next().split()
            self.at[what] = address.removeprefix("http://")

    def page(self, what: str, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self.at[what], timeout=PATIENCE_SECONDS)
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def caches(self) -> dict[str, Any]:
        caches: dict[str, Any] = json.loads(self.page("metrics", "/debug/caches")[1])
        return caches

    def end(self) -> int:
        self.process.terminate()
        code = self.process.wait(PATIENCE_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@contextlib.contextmanager
def managing(kubeconfig: Path, errors: Path, *flags: str) -> Iterator[ManagerProcess]:
    manager = ManagerProcess(kubeconfig, errors, *flags)
    try:
        yield manager
    finally:
        if manager.process.poll() is None:
            manager.end()


def listed(api: Api) -> str:
    """The digest of a fresh list, computed like the manager's digest of the cache."""
    items = json.loads(api.ask("GET", "/api/v1/pods", accept=PARTIAL).text)["items"]
    digest = hashlib.sha256()
    for metadata in sorted(
        (each["metadata"] for each in items), key=lambda one: (one["namespace"], one["name"])
    ):
        key = f"{metadata['namespace']}/{metadata['name']}"
        digest.update(f"{key}@{metadata['resourceVersion']}\n".encode())
    return digest.hexdigest()


def until_equal(manager: ManagerProcess, api: Api) -> None:
    digest = listed(api)
    wait(lambda: manager.caches()["pods"]["digest"] == digest, "the cache differs from the list")


def change(api: Api, life: int) -> None:
    """Some of everything that can happen to a pod."""
    for number in range(5):
        api.patch(
            f"{PATH}/held-{life * 10 + number:05d}", {"metadata": {"labels": {"l": str(life)}}}
        )
    api.done("DELETE", f"{PATH}/held-{life * 10 + 5:05d}")
    api.create(PATH, builders.pod(f"new-{life}", labels={"app": "held"}))


@pytest.mark.timeout(480)
def test_caches_are_equal_to_a_fresh_list_after_each_of_twenty_kills(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    asyncio.run(fill(data_dir, PODS))
    server = ServerProcess(data_dir)
    try:
        with managing(server.kubeconfig, tmp_path / "manager.stderr") as manager:
            until_equal(manager, Api(server.kubeconfig))
            assert manager.caches()["pods"]["objects"] == PODS
            for life in range(ROUNDS):
                server.kill()
                server = ServerProcess(data_dir)
                api = Api(server.kubeconfig)
                change(api, life)
                until_equal(manager, api)
            assert manager.page("health", "/readyz")[0] == 200
            assert manager.end() == 0
    finally:
        server.kill()
    assert "Traceback" not in (tmp_path / "manager.stderr").read_text()


async def test_only_jobs_that_name_refloat_are_taken_care_of(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server:
        async with connected(server.kubeconfig, RealClock(), Rand()) as on:
            ns = ScenarioNamespace(on, "default")
            await ns.submit("ours", managedBy="refloat.dev/job-controller")
            await ns.submit("theirs")
            with managing(server.kubeconfig, tmp_path / "manager.stderr"):
                await ns.wait_until(lambda ns: ns.pods)
                (pod,) = ns.present
                await ns.patch_pod(pod, {"status": {"phase": "Succeeded"}}, "status")
                status = await ns.finished("ours")
            assert (status["succeeded"], len(ns.pods)) == (1, 1)
            assert ns.status("theirs") == {}


def test_an_api_server_that_is_away_is_waited_for_and_said_so(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data")
    server.kill()
    errors = tmp_path / "manager.stderr"
    with managing(server.kubeconfig, errors) as manager:
        assert manager.page("health", "/healthz")[0] == 200
        assert manager.page("health", "/readyz")[0] == 500
        wait(lambda: "WARNING" in errors.read_text(), "no warning")
        with serving(tmp_path / "data"):
            wait(lambda: manager.page("health", "/readyz")[0] == 200, "the manager is not ready")


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (["--controllers", "nope"], "unknown controller 'nope'; known are: *, none"),
        (["--feature-gates", "Nope=true"], "unknown feature gate 'Nope'; known are: Failure"),
        (["--kubeconfig", "/does/not/exist"], "/does/not/exist"),
        (["--metrics-bind-address", "nowhere"], "--metrics-bind-address 'nowhere'"),
    ],
)
def test_wrong_use_is_told_and_ends_with_2(flags: list[str], error: str) -> None:
    result = run("manager", *flags)
    assert result.returncode == 2
    assert error in result.stderr
    assert len(result.stderr.splitlines()) == 1
