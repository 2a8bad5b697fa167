# SPDX-License-Identifier: Apache-2.0
"""What a request makes of a server that misbehaves: the right error, or another try."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import refloat
from refloat.base.rand import Rand
from refloat.client import cluster_access, contract, errors
from refloat.client.contract import DeleteOptions
from refloat.client.http import HttpClient
from refloat.client.settings import ClientSettings
from tests.clocks import ManualClock
from tests.unit.client.conftest import PODS, SETTINGS, Connect, Pod
from tests.unit.client.misbehaving import (
    Act,
    Misbehaving,
    answer,
    away,
    failure,
    hang,
    obj,
    reset,
    serving,
    status,
)

POD = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a", "resourceVersion": "7"}}

HTML = b"<html>\n<h1>502 Bad Gateway</h1></html>"
SHOWN = "it was: '<html> <h1>502 Bad Gateway</h1></html>'"
EXPECTED = "Expected `str | null`, got `int` - at `$.metadata.name`"


def get(client: HttpClient) -> Awaitable[Pod]:
    return client.get(PODS, "a", namespace="n")


class TestWhatIsSent:
    async def test_it_names_itself_its_token_and_what_it_takes(
        self, server: Misbehaving, client: HttpClient
    ) -> None:
        server.will(obj(POD))
        await get(client)
        request = server.seen[0]
        assert (request.method, request.target) == ("GET", "/api/v1/namespaces/n/pods/a")
        assert request.headers["user-agent"] == f"refloat/{refloat.__version__} (test)"
        assert request.headers["accept"] == "application/json"
        assert request.token == "secret"

    async def test_a_log_is_bounded_by_bytes(self, server: Misbehaving, client: HttpClient) -> None:
        """A container may write one line of a gigabyte."""
        server.will(obj(POD))
        await client.log("a", namespace="n", container="main", lines=20)
        path, _, query = server.seen[0].target.partition("?")
        assert path == "/api/v1/namespaces/n/pods/a/log"
        assert query == f"container=main&tailLines=20&limitBytes={contract.MAX_LOG_BYTES}"

    async def test_a_server_below_a_path_keeps_its_path(
        self, server: Misbehaving, connect: Connect
    ) -> None:
        server.will(obj(POD))
        await get(connect(server=f"{server.url}/k8s/clusters/c-1"))
        assert server.seen[0].target == "/k8s/clusters/c-1/api/v1/namespaces/n/pods/a"

    async def test_requests_one_after_the_other_share_a_connection(
        self, server: Misbehaving, client: HttpClient
    ) -> None:
        server.will(obj(POD), status(404, "NotFound"), obj(POD))
        await get(client)
        with pytest.raises(errors.NotFound):
            await get(client)
        await get(client)
        assert [request.connection for request in server.seen] == [1, 1, 1]

    async def test_a_delete_says_only_what_was_chosen(
        self, server: Misbehaving, client: HttpClient
    ) -> None:
        server.will(obj(POD), obj(POD))
        await client.delete(PODS, "a", namespace="n")
        await client.delete(
            PODS, "a", namespace="n", options=DeleteOptions(grace_seconds=0, uid="u", reason="r")
        )
        assert server.seen[0].body == b""
        assert json.loads(server.seen[1].body) == {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": "u"},
            "reason": "r",
        }

    async def test_large_body_is_sent_whole(self, server: Misbehaving, client: HttpClient) -> None:
        server.will(obj(POD))
        big = {"metadata": {"name": "a", "annotations": {"x": "y" * 1_500_000}}}
        await client.create(PODS, big, namespace="n")
        assert json.loads(server.seen[0].body)["metadata"] == big["metadata"]

    async def test_no_credentials_are_sent_without_encryption(self, clock: ManualClock) -> None:
        async with serving(None) as plain:
            plain.will(obj(POD))
            where = cluster_access.Access(
                cluster_access.ClusterEndpoint(plain.url), cluster_access.User(token="secret")
            )
            client = HttpClient(where, clock=clock, rand=Rand(1), settings=SETTINGS)
            await get(client)
            await client.close()
        assert "authorization" not in plain.seen[0].headers


FAILURES: dict[str, tuple[Act, type[errors.ClientError], str]] = {
    "a 403 in Kubernetes' form": (
        status(403, "Forbidden", 'pods "a" is forbidden: no'),
        errors.Forbidden,
        'pods "a" is forbidden: no',
    ),
    "a 403 in HTML": (
        answer(403, b"<html>Forbidden</html>", "text/html"),
        errors.Forbidden,
        "GET /api/v1/namespaces/n/pods/a: 403: '<html>Forbidden</html>'",
    ),
    "a 200 in HTML": (
        answer(200, HTML, "text/html"),
        errors.Unavailable,
        f"the answer is not a Pod: JSON is malformed: invalid character (byte 0); {SHOWN}",
    ),
    "a 404 without a body": (
        answer(404, b""),
        errors.NotFound,
        "GET /api/v1/namespaces/n/pods/a: 404: without a body",
    ),
    "a 400 that is JSON but no Status": (
        answer(400, b'{"oops": 1}'),
        errors.Invalid,
        "GET /api/v1/namespaces/n/pods/a: 400: '{\"oops\": 1}'",
    ),
    "a redirect, which is not followed": (
        answer(302, b"", Location="https://example.com/"),
        errors.Unavailable,
        "GET /api/v1/namespaces/n/pods/a: 302: without a body",
    ),
    "an answer of another shape": (
        obj({"metadata": {"name": 5}}),
        errors.Unavailable,
        f'the answer is not a Pod: {EXPECTED}; it was: \'{{"metadata": {{"name": 5}}}}\'',
    ),
    "an empty 200": (
        answer(200, b""),
        errors.Unavailable,
        "the answer is not a Pod: Input data was truncated; it was: ''",
    ),
}


class TestErrors:
    @pytest.mark.parametrize("name", FAILURES)
    async def test_it_is_told_what_came_back(
        self, name: str, server: Misbehaving, client: HttpClient
    ) -> None:
        act, want, text = FAILURES[name]
        server.will(*[act] * SETTINGS.attempts)
        with pytest.raises(want) as error:
            await get(client)
        assert type(error.value) is want
        assert str(error.value) == text

    async def test_410_as_a_status_is_expired(
        self, server: Misbehaving, client: HttpClient
    ) -> None:
        server.will(status(410, "Expired", "too old"))
        with pytest.raises(errors.Expired, match="too old"):
            await get(client)

    async def test_a_list_that_expires_half_way_is_not_begun_again_in_secret(
        self, server: Misbehaving, client: HttpClient
    ) -> None:
        first = {"metadata": {"resourceVersion": "7", "continue": "c"}, "items": [POD]}
        server.will(obj(first), status(410, "Expired", "too old"))
        pages = client.list(PODS, limit=1)
        assert (await anext(pages)).last is False
        with pytest.raises(errors.Expired):
            await anext(pages)
        assert server.seen[1].target == "/api/v1/pods?limit=1&continue=c"

    async def test_a_server_that_is_away_is_unreachable(
        self, connect: Connect, clock: ManualClock
    ) -> None:
        with pytest.raises(errors.Unreachable, match="Cannot connect to host"):
            await get(connect(server=await away()))
        assert len(clock.sleeps) == SETTINGS.attempts - 1

    async def test_a_hang_ends_after_the_request_timeout(
        self, server: Misbehaving, client: HttpClient, clock: ManualClock
    ) -> None:
        server.will(hang)
        waiting = asyncio.ensure_future(get(client))
        await server.arrived.wait()
        await clock.advance(SETTINGS.request_seconds - 1)
        await asyncio.sleep(0)
        assert not waiting.done()
        await clock.advance(1)
        with pytest.raises(errors.Timeout, match="no answer within 30 s"):
            await waiting
        assert len(server.seen) == 1

    async def test_a_closed_client_says_so(self, client: HttpClient) -> None:
        await client.close()
        with pytest.raises(errors.Unavailable, match="closed"):
            await get(client)


RETRIED: dict[str, Act] = {
    "500": status(500, "InternalError"),
    "502 in HTML": answer(502, HTML, "text/html"),
    "503": status(503, "ServiceUnavailable"),
    "504": status(504, "Timeout"),
    "429": status(429, "TooManyRequests"),
    "a reset": reset,
}


class TestRetries:
    @pytest.mark.parametrize("name", RETRIED)
    async def test_a_read_is_repeated_until_it_succeeds(
        self, name: str, server: Misbehaving, client: HttpClient, clock: ManualClock
    ) -> None:
        server.will(RETRIED[name], RETRIED[name], obj(POD))
        assert (await get(client)).metadata is not None
        assert len(clock.sleeps) == 2
        assert 0.25 <= clock.sleeps[0] <= 0.5 <= clock.sleeps[1] <= 1.0

    async def test_a_read_is_given_up_after_so_many_attempts(
        self, server: Misbehaving, client: HttpClient
    ) -> None:
        server.will(*[status(500, "InternalError", "broken")] * SETTINGS.attempts)
        with pytest.raises(errors.Unavailable, match="broken"):
            await get(client)
        assert len(server.seen) == SETTINGS.attempts

    async def test_retry_after_is_honoured(
        self, server: Misbehaving, client: HttpClient, clock: ManualClock
    ) -> None:
        server.will(status(429, "TooManyRequests", Retry_After=7), obj(POD))
        await get(client)
        assert len(clock.sleeps) == 1
        assert 7 <= clock.sleeps[0] <= 7.7

    async def test_a_retry_after_that_is_too_long_is_the_callers_business(
        self, server: Misbehaving, client: HttpClient, clock: ManualClock
    ) -> None:
        server.will(status(429, "TooManyRequests", Retry_After=3600))
        with pytest.raises(errors.TooManyRequests) as error:
            await get(client)
        assert error.value.retry_after == 3600
        assert clock.sleeps == []

    async def test_a_version_that_the_server_has_not_seen_is_the_callers_business(
        self, server: Misbehaving, client: HttpClient
    ) -> None:
        causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
        server.will(status(504, "Timeout", details={"causes": causes, "retryAfterSeconds": 1}))
        with pytest.raises(errors.Timeout):
            await get(client)
        assert len(server.seen) == 1


async def test_a_warning_of_the_server_is_logged_once(
    server: Misbehaving, client: HttpClient, caplog: pytest.LogCaptureFixture
) -> None:
    server.will(*[obj(POD, Warning='299 - "too old"')] * 2)
    await get(client)
    await get(client)
    assert caplog.messages == ['the API server warns: 299 - "too old"']


Call = Callable[[HttpClient], Awaitable[object]]

NAMED = {"metadata": {"name": "a"}}

REPEATABLE: dict[str, Call] = {
    "get": get,
    "create by name": lambda client: client.create(PODS, NAMED, namespace="n"),
    "apply": lambda client: client.patch(PODS, "a", NAMED, patch_type="apply", namespace="n"),
    "patch of a version": lambda client: client.patch(
        PODS, "a", {"metadata": {"resourceVersion": "7"}}, namespace="n"
    ),
    "delete of a uid": lambda client: client.delete(
        PODS, "a", namespace="n", options=DeleteOptions(uid="u")
    ),
    "evict of a uid": lambda client: client.evict(
        "a", namespace="n", options=DeleteOptions(uid="u")
    ),
}

ONCE: dict[str, Call] = {
    "create by generateName": lambda client: client.create(
        PODS, {"metadata": {"generateName": "a-"}}, namespace="n"
    ),
    "patch": lambda client: client.patch(PODS, "a", {"spec": {}}, namespace="n"),
    "JSON patch": lambda client: client.patch(PODS, "a", [], patch_type="json", namespace="n"),
    "delete": lambda client: client.delete(PODS, "a", namespace="n"),
    "evict": lambda client: client.evict("a", namespace="n"),
    "bind": lambda client: client.bind("a", "node", namespace="n"),
}

MAYBE_DONE: dict[str, Act] = {"500": status(500, "InternalError"), "a reset": reset}


class TestWhatIsSafeToRepeat:
    @pytest.mark.parametrize("fault", MAYBE_DONE)
    @pytest.mark.parametrize("name", REPEATABLE)
    async def test_what_does_no_harm_twice_is_repeated(
        self, name: str, fault: str, server: Misbehaving, client: HttpClient
    ) -> None:
        server.will(MAYBE_DONE[fault], obj(POD))
        await REPEATABLE[name](client)
        assert len(server.seen) == 2
        assert server.seen[0].body == server.seen[1].body

    @pytest.mark.parametrize("fault", MAYBE_DONE)
    @pytest.mark.parametrize("name", ONCE)
    async def test_what_might_be_done_twice_is_not_repeated(
        self, name: str, fault: str, server: Misbehaving, client: HttpClient
    ) -> None:
        server.will(MAYBE_DONE[fault])
        with pytest.raises(errors.Unavailable):
            await ONCE[name](client)
        assert len(server.seen) == 1

    @pytest.mark.parametrize("name", ONCE)
    async def test_a_write_on_a_connection_that_was_used_before_is_not_repeated_either(
        self, name: str, server: Misbehaving, client: HttpClient
    ) -> None:
        server.will(obj(POD), reset)
        await get(client)
        with pytest.raises(errors.Unavailable):
            await ONCE[name](client)
        assert [request.connection for request in server.seen] == [1, 1]

    @pytest.mark.parametrize("name", ONCE)
    async def test_what_was_turned_away_is_repeated_whatever_it_is(
        self, name: str, server: Misbehaving, client: HttpClient
    ) -> None:
        server.will(status(429, "TooManyRequests"), obj(POD))
        await ONCE[name](client)
        assert len(server.seen) == 2

    async def test_an_eviction_that_a_budget_refuses_is_not_repeated(
        self, server: Misbehaving, client: HttpClient
    ) -> None:
        cause = {"reason": "DisruptionBudget", "message": "needs 1 healthy pods"}
        details = {"causes": [cause], "retryAfterSeconds": 10}
        body = failure(429, "TooManyRequests", "Cannot evict pod", details)
        server.will(obj(body, 429, Retry_After=10))
        with pytest.raises(errors.TooManyRequests) as error:
            await client.evict("a", namespace="n", options=DeleteOptions(uid="u"))
        assert error.value.causes == (("DisruptionBudget", "", "needs 1 healthy pods"),)
        assert error.value.retry_after == 10

    async def test_a_create_whose_answer_was_lost_meets_its_own_object(
        self, server: Misbehaving, client: HttpClient
    ) -> None:
        server.will(reset, status(409, "AlreadyExists", 'pods "a" already exists'))
        with pytest.raises(errors.AlreadyExists):
            await client.create(PODS, NAMED, namespace="n")


class TestCredentials:
    async def test_a_token_that_was_replaced_is_read_again_after_a_401(
        self, server: Misbehaving, connect: Connect, tmp_path: Path
    ) -> None:
        file = tmp_path / "token"
        file.write_text("old\n")
        client = connect(cluster_access.User(token_file=file))
        server.will(obj(POD), status(401, "Unauthorized"), obj(POD))
        await get(client)
        file.write_text("newer\n")
        await client.patch(PODS, "a", {}, namespace="n")
        assert [request.token for request in server.seen] == ["old", "old", "newer"]

    async def test_a_token_that_stays_the_same_is_not_tried_twice(
        self, server: Misbehaving, client: HttpClient
    ) -> None:
        server.will(status(401, "Unauthorized", "Unauthorized"))
        with pytest.raises(errors.Unauthorized, match="Unauthorized"):
            await get(client)
        assert len(server.seen) == 1

    async def test_a_token_file_that_is_missing_is_told_with_its_path(
        self, connect: Connect, tmp_path: Path
    ) -> None:
        client = connect(cluster_access.User(token_file=tmp_path / "token"))
        with pytest.raises(errors.Unauthorized, match="/token: cannot be read: No such file"):
            await get(client)


async def test_a_client_waits_for_its_turn(
    server: Misbehaving, connect: Connect, clock: ManualClock
) -> None:
    client = connect(settings=ClientSettings(qps=2, burst=3))
    server.will(*[obj(POD)] * 5)
    for _ in range(5):
        await get(client)
    assert clock.sleeps == pytest.approx([0.5, 0.5])
