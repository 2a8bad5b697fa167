# SPDX-License-Identifier: Apache-2.0
"""What is counted, and as what."""

import asyncio
import json
import logging
from typing import Any

import aiohttp
import pytest

from refloat.api import kinds
from refloat.apiserver import metrics
from refloat.apiserver.metrics import Labels
from refloat.apiserver.routes import Target
from refloat.base import metrics as process_metrics
from tests import servers
from tests.cases import cases

PODS = kinds.of("pods")
JOBS = kinds.of("jobs", "batch")
NODES = kinds.of("nodes")

MAPS = "/api/v1/namespaces/default/configmaps"


@cases(
    "target verb want",
    {
        "all": (Target(PODS), "list", Labels("LIST", "", "v1", "pods", "", "cluster")),
        "ns": (Target(PODS, "a"), "watch", Labels("WATCH", "", "v1", "pods", "", "namespace")),
        "one": (
            Target(JOBS, "a", "b"),
            "get",
            Labels("GET", "batch", "v1", "jobs", "", "resource"),
        ),
        "a subresource": (
            Target(PODS, "a", "b", "status"),
            "update",
            Labels("PUT", "", "v1", "pods", "status", "resource"),
        ),
        "create": (Target(NODES), "create", Labels("POST", "", "v1", "nodes", "", "resource")),
        "delete many": (
            Target(PODS, "a"),
            "deletecollection",
            Labels("DELETE", "", "v1", "pods", "", "namespace"),
        ),
    },
)
def test_a_request_is_counted_as_kubernetes_does(target: Target, verb: str, want: Labels) -> None:
    assert metrics.of_target(target, verb) == want


@pytest.mark.parametrize(
    ("method", "path", "want"),
    [
        ("GET", "/healthz", Labels("GET", subresource="/healthz", component="")),
        ("GET", "/apis/batch/v1", Labels("GET", subresource="/apis", component="")),
        ("GET", "/whatever/x", Labels("GET", component="")),
        ("FOO", "/version", Labels("other", subresource="/version", component="")),
    ],
)
def test_paths_and_methods_that_clients_invent_make_no_series(
    method: str, path: str, want: Labels
) -> None:
    assert metrics.of_path(method, path) == want


def test_two_registries_do_not_add_up() -> None:
    one, other = metrics.Metrics(), metrics.Metrics()
    one.done(metrics.MALFORMED, 400, 0.1)
    text, media = process_metrics.exposition(other.registry, "")
    assert b'apiserver_request_total{code="400"' not in text
    assert media.startswith("text/plain; version=")


def test_a_registry_of_a_process_tells_of_the_process() -> None:
    text, _ = process_metrics.exposition(process_metrics.process_registry(), "")
    assert b"process_resident_memory_bytes" in text


async def ask(server: servers.ListeningServer, method: str, path: str, body: Any = None) -> str:
    headers = {"Authorization": f"Bearer {servers.TOKEN}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        data = None if body is None else json.dumps(body)
        url = f"http://127.0.0.1:{server.port}{path}"
        async with session.request(method, url, data=data) as answer:
            return await answer.text()


async def test_requests_are_counted_and_timed() -> None:
    async with servers.serving() as server:
        for _ in range(2):
            await ask(server, "GET", f"{MAPS}/none")
        text = await ask(server, "GET", "/metrics")
    labels = (
        'component="apiserver",group="",resource="configmaps",scope="resource",subresource="",'
        'verb="GET",version="v1"'
    )
    assert f'apiserver_request_total{{code="404",{labels}}} 2.0' in text
    assert f"apiserver_request_duration_seconds_count{{{labels}}} 2.0" in text


@pytest.mark.parametrize(
    "want",
    [
        'apiserver_current_inflight_requests{request_kind="mutating"} 0.0',
        'apiserver_current_inflight_requests{request_kind="readOnly"} 1.0',
        "refloat_watchers 0.0",
        "refloat_store_revision ",
        "refloat_store_size_bytes ",
        "refloat_watch_dispatch_lag_seconds_count ",
        "refloat_event_loop_stall_seconds_count ",
    ],
)
async def test_metrics_tell_of(want: str) -> None:
    async with servers.serving() as server:
        assert f"\n{want}" in await ask(server, "GET", "/metrics")


async def test_a_watch_is_counted_while_it_is_open() -> None:
    name = "apiserver_longrunning_requests"
    labels = Labels("WATCH", "", "v1", "configmaps", "", "namespace")._asdict()
    async with servers.serving() as server:
        watch = asyncio.ensure_future(ask(server, "GET", f"{MAPS}?watch=1&timeoutSeconds=1"))
        while not server.count(name, **labels):
            await asyncio.sleep(0)
        assert server.dispatcher.watchers <= 1
        await watch
        assert server.count(name, **labels) == 0


async def test_metrics_are_not_for_everybody() -> None:
    async with (
        servers.serving() as server,
        aiohttp.ClientSession() as nobody,
        nobody.get(f"http://127.0.0.1:{server.port}/metrics") as answer,
    ):
        assert answer.status == 403


# -- logs ------------------------------------------------------------------


async def test_a_write_is_logged_with_all_that_is_needed_to_find_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with servers.serving() as server, aiohttp.ClientSession() as client:
        with caplog.at_level(logging.INFO, logger="refloat.apiserver.http"):
            headers = {"Authorization": f"Bearer {servers.TOKEN}", "Audit-ID": "mine"}
            url = f"http://127.0.0.1:{server.port}{MAPS}/none"
            async with client.delete(url, headers=headers) as answer:
                assert answer.headers["Audit-Id"] == "mine"
    [record] = caplog.records
    fields = record.__dict__["fields"]
    assert fields.pop("ms") >= 0
    assert fields == {
        "id": "mine",
        "user": "kubernetes-admin",
        "verb": "DELETE",
        "path": f"{MAPS}/none",
        "code": 404,
    }


async def test_a_read_is_not_logged_unless_one_looks_closely(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with servers.serving() as server:
        with caplog.at_level(logging.INFO, logger="refloat.apiserver.http"):
            await ask(server, "GET", MAPS)
        assert caplog.records == []
        with caplog.at_level(logging.DEBUG, logger="refloat.apiserver.http"):
            await ask(server, "GET", MAPS)
        assert [record.levelname for record in caplog.records] == ["DEBUG"]


async def test_an_id_that_cannot_be_a_header_is_not_taken_over() -> None:
    async with servers.serving() as server, aiohttp.ClientSession() as client:
        url = f"http://127.0.0.1:{server.port}/version"
        async with client.get(url, headers={"Audit-ID": "a b"}) as answer:
            assert len(answer.headers["Audit-Id"]) == 36


async def test_no_token_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with servers.serving() as server:
        with caplog.at_level(logging.DEBUG):
            await ask(server, "GET", MAPS)
            await ask(server, "POST", MAPS, {"metadata": {"name": "a"}})
    assert servers.TOKEN not in caplog.text
