# SPDX-License-Identifier: Apache-2.0
"""What is not a resource: which methods a page takes, and what is not there at all."""

import pytest

from tests.unit.apiserver.cluster_of_nodes import Api

METHODS = ["POST", "PUT", "PATCH", "DELETE"]

NOT_THERE = "the server could not find the requested resource"

ABSENT = [
    ("an unknown resource", "/api/v1/foos"),
    ("an unknown resource in a namespace", "/api/v1/namespaces/default/foos/x"),
    ("an unknown resource of a group", "/apis/authorization.k8s.io/v1/foos"),
    ("an unknown subresource", "/api/v1/namespaces/default/pods/x/foo"),
    ("an unknown version", "/apis/batch/v2/jobs"),
    ("an unknown version of the core", "/api/v2"),
    ("more than an address", "/apis/batch/v1/namespaces/default/jobs/a/b/c"),
    ("below the version", "/version/foo"),
]


@pytest.mark.parametrize("path", [each[1] for each in ABSENT], ids=[each[0] for each in ABSENT])
@pytest.mark.parametrize("method", ["GET", *METHODS])
async def test_what_is_not_there_is_not_found_by_any_method(
    api: Api, method: str, path: str
) -> None:
    answer = await api.ask("admin", method, path)
    assert (answer.status, answer.body["message"]) == (404, NOT_THERE)


PLAIN = ["/foo", "/apis/foo/v1/bars", "/apis/foo", "/healthz/foo", "/healthzz"]
SLASHED = ["/healthz/", "/livez/ping/", "/metrics/", "/openapi/v2/"]


@pytest.mark.parametrize("path", [*PLAIN, *SLASHED])
@pytest.mark.parametrize("method", ["GET", *METHODS])
async def test_an_unknown_group_or_page_is_told_in_plain_text(
    api: Api, method: str, path: str
) -> None:
    answer = await api.ask("admin", method, path)
    assert (answer.status, answer.body) == (404, "404 page not found\n")


@pytest.mark.parametrize("path", ["/api", "/api/", "/api/v1", "/apis/batch/v1", "/version"])
@pytest.mark.parametrize("method", METHODS)
async def test_a_page_that_is_only_read_refuses_other_methods(
    api: Api, method: str, path: str
) -> None:
    answer = await api.ask("admin", method, path)
    assert (answer.status, answer.body["reason"]) == (405, "MethodNotAllowed")


@pytest.mark.parametrize("path", ["/", "/apis", "/apis/batch", "/healthz", "/openapi/v3"])
@pytest.mark.parametrize("method", METHODS)
async def test_other_pages_do_not_look_at_the_method(api: Api, method: str, path: str) -> None:
    assert (await api.ask("admin", method, path)).status == 200


@pytest.mark.parametrize("path", ["/openapi/v3/", "/openapi/v3/api/v1/", "/openapi/v3/foo"])
async def test_an_unknown_document_is_not_found_without_a_word(api: Api, path: str) -> None:
    answer = await api.ask("admin", "GET", path)
    assert (answer.status, answer.body) == (404, "")


@pytest.mark.parametrize("path", ["/api/", "/api/v1/", "/apis/", "/apis/batch/", "/version/"])
async def test_discovery_takes_a_slash_at_its_end(api: Api, path: str) -> None:
    assert (await api.ask("admin", "GET", path)).status == 200
