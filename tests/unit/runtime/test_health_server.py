# SPDX-License-Identifier: Apache-2.0
"""The endpoints of a process, over real sockets."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Gauge

from refloat.base.clock import RealClock
from refloat.base.errors import UsageError
from refloat.runtime.health_server import Address, Endpoints, parse_address


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[Endpoints]:
    registry = CollectorRegistry()
    Gauge("answer", "to everything", registry=registry).set(42)
    endpoints = Endpoints(registry=registry, clock=RealClock(), **settings)
    await endpoints.start()
    try:
        yield endpoints
    finally:
        await endpoints.close()


async def ask(endpoints: Endpoints, what: str, path: str) -> tuple[int, str]:
    host, port = endpoints.addresses[what]
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{host}:{port}{path}") as answer,
    ):
        return answer.status, await answer.text()


async def test_health_and_metrics_are_served_on_this_machine() -> None:
    async with serving(health=Address(), metrics_at=Address("127.0.0.1")) as endpoints:
        assert endpoints.addresses["health"][0] == "127.0.0.1"
        assert await ask(endpoints, "health", "/healthz") == (200, "ok")
        assert await ask(endpoints, "health", "/livez") == (200, "ok")
        assert await ask(endpoints, "health", "/readyz") == (200, "ok")
        status, text = await ask(endpoints, "metrics", "/metrics")
        assert status == 200
        assert "answer 42.0" in text


async def test_with_two_addresses_each_serves_its_own_only() -> None:
    async with serving(health=Address("127.0.0.1", 0)) as endpoints:
        assert set(endpoints.addresses) == {"health"}
        assert (await ask(endpoints, "health", "/metrics"))[0] == 404


async def test_what_is_not_ready_is_said_check_by_check() -> None:
    async with serving(health=Address()) as endpoints:
        endpoints.ready_when("informers", lambda: "not synced: pods")
        endpoints.ready_when("other", lambda: None)
        assert await ask(endpoints, "health", "/readyz") == (
            500,
            "[+]ping ok\n[-]informers failed: not synced: pods\n[+]other ok\nreadyz check failed\n",
        )
        assert (await ask(endpoints, "health", "/healthz"))[0] == 200


async def test_verbose_lists_what_is_well() -> None:
    async with serving(health=Address()) as endpoints:
        endpoints.ready_when("lease", lambda: None)
        assert await ask(endpoints, "health", "/readyz?verbose") == (
            200,
            "[+]ping ok\n[+]lease ok\nreadyz check passed\n",
        )


async def test_an_address_that_is_taken_is_said_in_one_sentence() -> None:
    async with serving(health=Address()) as endpoints:
        address = Address(*endpoints.addresses["health"])
        with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{address.port}: "):
            async with serving(health=address):
                pass


async def test_without_addresses_nothing_listens() -> None:
    async with serving() as endpoints:
        assert endpoints.addresses == {}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("0", None),
        (":8080", Address("0.0.0.0", 8080)),
        ("127.0.0.1:0", Address("127.0.0.1", 0)),
        ("[::1]:8080", Address("::1", 8080)),
        ("localhost:65535", Address("localhost", 65535)),
    ],
)
def test_addresses_are_read_as_kubernetes_flags_are(text: str, want: Address | None) -> None:
    assert parse_address(text, "--metrics-bind-address") == want


@pytest.mark.parametrize("text", ["", "8080", "host:", "host:x", "host:65536", "host:-1"])
def test_a_bad_address_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(UsageError, match=r"--metrics-bind-address .*: expected host:port"):
        parse_address(text, "--metrics-bind-address")
