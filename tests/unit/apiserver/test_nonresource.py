# SPDX-License-Identifier: Apache-2.0
"""What is not a resource: which methods a page takes, and what is not there at all."""

import aiohttp
import pytest

from refloat.store.memory import MemoryStore
from tests import servers
from tests.cases import cases
from tests.unit.apiserver.cluster_of_nodes import NodesApi

METHODS = ["POST", "PUT", "PATCH", "DELETE"]

NOT_THERE = "the server could not find the requested resource"

ABSENT = {
    "an unknown resource": "/api/v1/foos",
    "an unknown resource in a namespace": "/api/v1/namespaces/default/foos/x",
    "an unknown resource of a group": "/apis/authorization.k8s.io/v1/foos",
    "an unknown subresource": "/api/v1/namespaces/default/pods/x/foo",
    "an unknown version": "/apis/batch/v2/jobs",
    "an unknown version of the core": "/api/v2",
    "more than an address": "/apis/batch/v1/namespaces/default/jobs/a/b/c",
    "below the version": "/version/foo",
}


@cases("path", ABSENT)
@pytest.mark.parametrize("method", ["GET", *METHODS])
async def test_what_is_not_there_is_not_found_by_any_method(
    api: NodesApi, method: str, path: str
) -> None:
    answer = await api.ask("admin", method, path)
    assert (answer.status, answer.body["message"]) == (404, NOT_THERE)


PLAIN = ["/foo", "/apis/foo/v1/bars", "/apis/foo", "/healthz/foo", "/healthzz"]
SLASHED = ["/healthz/", "/livez/ping/", "/metrics/", "/openapi/v2/"]


@pytest.mark.parametrize("path", [*PLAIN, *SLASHED])
@pytest.mark.parametrize("method", ["GET", *METHODS])
async def test_an_unknown_group_or_page_is_told_in_plain_text(
    api: NodesApi, method: str, path: str
) -> None:
    answer = await api.ask("admin", method, path)
    assert (answer.status, answer.body) == (404, "404 page not found\n")


@pytest.mark.parametrize("path", ["/api", "/api/", "/api/v1", "/apis/batch/v1", "/version"])
@pytest.mark.parametrize("method", METHODS)
async def test_a_page_that_is_only_read_refuses_other_methods(
    api: NodesApi, method: str, path: str
) -> None:
    answer = await api.ask("admin", method, path)
    assert (answer.status, answer.body["reason"]) == (405, "MethodNotAllowed")


@pytest.mark.parametrize("path", ["/", "/apis", "/apis/batch", "/healthz", "/openapi/v3"])
@pytest.mark.parametrize("method", METHODS)
async def test_other_pages_do_not_look_at_the_method(api: NodesApi, method: str, path: str) -> None:
    assert (await api.ask("admin", method, path)).status == 200


@pytest.mark.parametrize("path", ["/openapi/v3/", "/openapi/v3/api/v1/", "/openapi/v3/foo"])
async def test_an_unknown_document_is_not_found_without_a_word(api: NodesApi, path: str) -> None:
    answer = await api.ask("admin", "GET", path)
    assert (answer.status, answer.body) == (404, "")


@pytest.mark.parametrize("path", ["/api/", "/api/v1/", "/apis/", "/apis/batch/", "/version/"])
async def test_discovery_takes_a_slash_at_its_end(api: NodesApi, path: str) -> None:
    assert (await api.ask("admin", "GET", path)).status == 200


async def _health(shortage: str, path: str) -> tuple[int, str]:
    """The readiness of a server whose disk has this shortage."""

    class FailingStore(MemoryStore):
        @property
        def shortage(self) -> str:
            return shortage if ready else ""

    ready, store = False, FailingStore()
    async with servers.serving(store=store) as server, aiohttp.ClientSession() as session:
        ready = True
        async with session.get(f"http://127.0.0.1:{server.port}{path}", headers=ADMIN) as answer:
            return answer.status, await answer.text()


ADMIN = {"Authorization": f"Bearer {servers.TOKEN}"}
FULL = "the disk is nearly full"


@pytest.mark.parametrize(
    ("shortage", "path", "want"),
    [
        ("", "/readyz", (200, "ok")),
        ("", "/readyz/disk", (200, "ok")),
        ("", "/readyz?verbose", (200, "[+]ping ok\n[+]disk ok\nreadyz check passed\n")),
        ("", "/livez?verbose", (200, "[+]ping ok\nlivez check passed\n")),
        (FULL, "/readyz", (500, f"[+]ping ok\n[-]disk failed: {FULL}\nreadyz check failed\n")),
        (FULL, "/readyz/disk", (500, f"internal server error: {FULL}\n")),
        (FULL, "/readyz/ping", (200, "ok")),
        (FULL, "/livez", (200, "ok")),
        (FULL, "/healthz", (200, "ok")),
    ],
)
async def test_only_readyz_fails_while_the_disk_is_nearly_full(
    shortage: str, path: str, want: tuple[int, str]
) -> None:
    assert await _health(shortage, path) == want
