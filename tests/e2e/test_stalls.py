# SPDX-License-Identifier: Apache-2.0
"""With 20,000 pods, no callback of the server takes 50 ms.

Measured for each callback of the loop, in processor time of the loop's own
thread: a machine that is busy with other things does not count, the garbage
collector does. The clients are threads, so that they do not.
"""

import asyncio
import gc
import http.client
import json
import time
from asyncio import events
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import pytest_asyncio

from refloat.api import kinds
from refloat.apiserver import storage_codec
from refloat.base import process
from tests import servers
from tests.cases import cases

PODS = kinds.of("pods")
COUNT = 20_000
NAMESPACES = 10
LIMIT_SECONDS = 0.050
WATCHERS = 20

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
STATE = (
    "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    "&timeoutSeconds=60"
)

TIME = "2026-01-02T03:04:05Z"


def pod(number: int) -> dict[str, Any]:
    """As large as they are: about 1.6 KB."""
    container = {
        "name": "main",
        "image": "registry.example/busybox:1",
        "command": ["true"],
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }
    conditions = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "metadata": {
            "name": f"pod-{number:05}",
            "namespace": f"ns-{number % NAMESPACES}",
            "uid": f"00000000-0000-0000-0000-{number:012}",
            "creationTimestamp": TIME,
            "labels": {"app": f"app-{number % 7}", "job-name": f"job-{number % 100}"},
        },
        "spec": {
            "containers": [container],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "securityContext": {},
            "schedulerName": "default-scheduler",
            "nodeName": f"node-{number % 200}",
            "serviceAccountName": "default",
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
            ],
        },
        "status": {
            "phase": "Running",
            "qosClass": "BestEffort",
            "conditions": [
                {"type": each, "status": "True", "lastTransitionTime": TIME} for each in conditions
            ],
            "containerStatuses": [
                {"name": "main", "ready": True, "restartCount": 0, "image": "x", "imageID": "x"}
            ],
        },
    }


async def fill(server: servers.ListeningServer) -> None:
    for start in range(0, COUNT, 250):
        pods = (pod(number) for number in range(start, start + 250))
        await asyncio.gather(
            *(
                server.store.create(
                    storage_codec.key(
                        PODS, each["metadata"]["namespace"], each["metadata"]["name"]
                    ),
                    storage_codec.pack(PODS, each),
                )
                for each in pods
            )
        )


@contextmanager
def longest_callback() -> Iterator[list[tuple[float, str]]]:
    """The callbacks of the loop that took longest, with what they were."""
    slow: list[tuple[float, str]] = []
    run = events.Handle._run

    def timed(handle: events.Handle) -> None:
        started = time.thread_time()
        run(handle)
        took = time.thread_time() - started
        if took > LIMIT_SECONDS / 5:
            slow.append((took, repr(handle)))

    events.Handle._run = timed  # type: ignore[assignment, method-assign]
    try:
        yield slow
    finally:
        events.Handle._run = run  # type: ignore[method-assign]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[servers.ListeningServer]:
    async with servers.serving() as running:
        await fill(running)
        process.settle()  # like the command, once the server is ready
        yield running
    gc.unfreeze()


def ask(port: int, method: str, path: str, accept: str, enough: int) -> int:
    """Send a request; the size of the answer, or of a sufficient part of a watch."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Authorization": f"Bearer {servers.TOKEN}", "Accept": accept}
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    size = 0
    tail = b""
    try:
        while piece := answer.read1(2**20):
            size += len(piece)
            tail = tail[-100:] + piece
            if b"k8s.io/initial-events-end" in tail or ("watch=1" in path and size > enough):
                break
        return size
    finally:
        answer.close()
        connection.close()


async def asked(times: int, *request: Any) -> list[int]:
    """Ask the same from several threads at once."""
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(times) as threads:
        answers = (loop.run_in_executor(threads, ask, *request) for _ in range(times))
        return await asyncio.gather(*answers)


@pytest.mark.asyncio(loop_scope="module")
@cases(
    "method path accept want_bytes",
    {
        "list": ("GET", "/api/v1/pods", "application/json", COUNT * 1000),
        "indented": ("GET", "/api/v1/pods?pretty=1", "application/json", COUNT * 1000),
        "table": ("GET", "/api/v1/pods", TABLE, COUNT * 300),
        "metadata": ("GET", "/api/v1/pods", METADATA, COUNT * 200),
        "YAML": ("GET", "/api/v1/pods?limit=500", "application/yaml", 500_000),
        "labels": ("GET", "/api/v1/pods?labelSelector=app%3Dapp-1", "application/json", 10**6),
        "fields": (
            "GET",
            "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-1",
            "application/json",
            10**5,
        ),
        "a limited search": (
            "GET",
            "/api/v1/pods?limit=10000&labelSelector=job-name%3Djob-1",
            "application/json",
            10**5,
        ),
        "watch": ("GET", f"/api/v1/pods?{STATE}", "application/json", COUNT * 1000),
        "watch of a table": ("GET", f"/api/v1/pods?{STATE}", TABLE, COUNT * 300),
        "watch with a selector": (
            "GET",
            f"/api/v1/pods?{STATE}&labelSelector=app%3Dapp-1",
            "application/json",
            10**6,
        ),
        "watch from the past": (
            "GET",
            "/api/v1/pods?watch=1&resourceVersion=10&timeoutSeconds=60",
            "application/json",
            COUNT * 1000,
        ),
        "a dry run of many deletions": (
            "DELETE",
            "/api/v1/namespaces/ns-1/pods?dryRun=All",
            "application/json",
            10**6,
        ),
        "OpenAPI": ("GET", "/openapi/v3/api/v1", "application/json", 10**5),
        "metrics": ("GET", "/metrics", "*/*", 1000),
    },
)
async def test_no_callback_holds_the_loop(
    server: servers.ListeningServer, method: str, path: str, accept: str, want_bytes: int
) -> None:
    with longest_callback() as slow:
        sizes = await asked(3, server.port, method, path, accept, want_bytes)
    assert min(sizes) > want_bytes  # the whole answer
    assert [each for each in sorted(slow) if each[0] > LIMIT_SECONDS] == []


@pytest.mark.asyncio(loop_scope="module")
async def test_changes_for_many_watchers_do_not_hold_the_loop(
    server: servers.ListeningServer,
) -> None:
    path = f"/api/v1/pods?watch=1&resourceVersion={server.store.revision}&timeoutSeconds=60"
    entries = server.store.page("pods/", limit=500).entries
    with longest_callback() as slow:
        request = (server.port, "GET", path, "*/*", 500 * 1000)
        watches = asyncio.ensure_future(asked(WATCHERS, *request))
        while server.dispatcher.watchers < WATCHERS:
            await asyncio.sleep(0.01)
        await asyncio.gather(
            *(
                server.store.update(each.key, _relabelled(each.value), expected=each.revision)
                for each in entries
            )
        )
        sizes = await watches
    assert min(sizes) > 500 * 1000
    assert [each for each in sorted(slow) if each[0] > LIMIT_SECONDS] == []


def _relabelled(value: bytes) -> bytes:
    obj = json.loads(value)
    obj["metadata"]["labels"]["changed"] = "yes"
    return json.dumps(obj, separators=(",", ":")).encode()
