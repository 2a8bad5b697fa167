# SPDX-License-Identifier: Apache-2.0
"""TLS, client certificates and proxies, on real connections."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from refloat.client import cluster_access, errors
from refloat.client.http import HttpClient
from tests.cases import cases
from tests.clocks import ManualClock
from tests.unit.client import certs, misbehaving
from tests.unit.client.conftest import PODS, Connect, Tls, script
from tests.unit.client.misbehaving import Misbehaving, away, obj, status, stream

POD = {"kind": "Pod", "metadata": {"name": "a", "resourceVersion": "7"}}

ALICE, BOB = certs.client("alice"), certs.client("bob")


async def get(client: HttpClient) -> None:
    await client.get(PODS, "a", namespace="n")


class TestServers:
    async def test_a_server_of_an_unknown_authority_is_refused(
        self, server: Misbehaving, connect: Connect
    ) -> None:
        with pytest.raises(errors.Unreachable, match="certificate verify failed"):
            await get(connect(authority=cluster_access.NOTHING))
        assert server.seen == []

    async def test_a_server_of_another_name_is_refused(
        self, server: Misbehaving, connect: Connect
    ) -> None:
        with pytest.raises(errors.Unreachable, match="certificate verify failed"):
            await get(connect(server_name="example.com"))
        assert server.seen == []

    async def test_name_to_expect_can_be_given(self, server: Misbehaving, connect: Connect) -> None:
        server.will(obj(POD))
        await get(connect(server_name="kubernetes.default.svc"))

    async def test_verification_can_be_switched_off(
        self, server: Misbehaving, connect: Connect
    ) -> None:
        server.will(obj(POD))
        await get(connect(authority=cluster_access.NOTHING, insecure=True))

    @pytest.mark.parametrize("content", [b"nonsense", b"\xff\xfe", None])
    async def test_an_authority_that_cannot_be_read_is_told(
        self, content: bytes | None, connect: Connect, tmp_path: Path
    ) -> None:
        file = tmp_path / "ca.crt"
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(errors.Unreachable, match="certificate authority: "):
            await get(connect(authority=cluster_access.Source(path=file)))


def user(pair: certs.Pair) -> cluster_access.User:
    return cluster_access.User(
        certificate=cluster_access.Source(data=pair.certificate),
        key=cluster_access.Source(data=pair.key),
    )


class TestClients:
    async def test_a_certificate_as_data(self, server: Misbehaving, connect: Connect) -> None:
        server.will(obj(POD))
        await get(connect(user(ALICE)))
        assert server.seen[0].peer == "alice"

    async def test_a_renewed_certificate_is_used_for_new_requests(
        self, server: Misbehaving, connect: Connect, tmp_path: Path, clock: ManualClock
    ) -> None:
        certificate, key = tmp_path / "crt", tmp_path / "key"
        certificate.write_bytes(ALICE.certificate)
        key.write_bytes(ALICE.key)
        client = connect(
            cluster_access.User(
                certificate=cluster_access.Source(path=certificate),
                key=cluster_access.Source(path=key),
            )
        )
        server.will(obj(POD), obj(POD), stream(then="open"), obj(POD))
        await get(client)
        await get(client)
        watch = client.watch(PODS)
        waiting = asyncio.ensure_future(anext(watch, None))
        await server.sent.wait()
        certificate.write_bytes(BOB.certificate)
        key.write_bytes(BOB.key)
        await clock.advance(1)
        await get(client)
        assert [request.peer for request in server.seen] == ["alice", "alice", "alice", "bob"]
        assert not waiting.done()
        await watch.aclose()
        await waiting

    async def test_a_plugins_certificate(
        self, server: Misbehaving, connect: Connect, tmp_path: Path
    ) -> None:
        version = "client.authentication.k8s.io/v1"
        command = script(tmp_path, f"cat {tmp_path}/next")
        (tmp_path / "next").write_text(_printed(version, ALICE))
        plugin = cluster_access.Plugin(command, version, interactive="Never")
        client = connect(cluster_access.User(plugin=plugin))
        server.will(obj(POD), status(401, "Unauthorized"), obj(POD))
        await get(client)
        (tmp_path / "next").write_text(_printed(version, BOB))
        await get(client)
        assert [request.peer for request in server.seen] == ["alice", "alice", "bob"]

    async def test_a_plugin_that_fails_leaves_the_request_unsent(
        self, server: Misbehaving, connect: Connect, tmp_path: Path
    ) -> None:
        command = script(tmp_path, "echo no network >&2; exit 1")
        plugin = cluster_access.Plugin(
            command, "client.authentication.k8s.io/v1", interactive="Never"
        )
        with pytest.raises(errors.Unauthorized, match="ended with code 1: no network"):
            await get(connect(cluster_access.User(plugin=plugin)))
        assert server.seen == []

    @cases(
        "pair text",
        {
            "mixed": (certs.Pair(ALICE.certificate, BOB.key), "cannot be used"),
            "nonsense": (certs.Pair(b"x", b"y"), "cannot be used"),
            "encrypted": (certs.client("carol", b"pw"), "the key is encrypted"),
        },
    )
    async def test_a_pair_that_does_not_fit_is_told(
        self, pair: certs.Pair, text: str, connect: Connect
    ) -> None:
        with pytest.raises(errors.Unauthorized, match=text):
            await get(connect(user(pair)))


def _printed(version: str, pair: certs.Pair) -> str:
    import json  # noqa: PLC0415

    body = {"clientCertificateData": pair.certificate.decode(), "clientKeyData": pair.key.decode()}
    return json.dumps({"kind": "ExecCredential", "apiVersion": version, "status": body})


@dataclass
class Proxy:
    """Leads connections on, or answers with a refusal."""

    refusal: bytes = b""
    heads: list[str] = field(default_factory=list)
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        if self.refusal:
            writer.write(self.refusal)
        else:
            await self._lead(reader, writer)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.heads[-1].split(" ")[1].rpartition(":")
        there, back = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(_pipe(reader, back), _pipe(there, writer))


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def proxying(refusal: bytes = b"", tls: ssl.SSLContext | None = None) -> AsyncIterator[Proxy]:
    proxy = Proxy(refusal)
    listener = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, ssl=tls)
    scheme = "http" if tls is None else "https"
    proxy.url = f"{scheme}://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        listener.close()
        await listener.wait_closed()


class TestProxies:
    async def test_requests_and_watches_go_through_the_proxy(
        self, server: Misbehaving, connect: Connect
    ) -> None:
        async with proxying() as proxy:
            client = connect(proxy=proxy.url.replace("//", "//me:pw@"))
            server.will(obj(POD), stream())
            await get(client)
            assert [event async for event in client.watch(PODS)] == []
            await client.close()
        assert len(server.seen) == len(proxy.heads) == 2
        assert proxy.heads[0].startswith(f"CONNECT {server.url.removeprefix('https://')} ")
        assert "Proxy-Authorization: Basic bWU6cHc=" in proxy.heads[0]
        assert "secret" not in proxy.heads[0]

    async def test_a_proxy_is_reached_over_tls_if_its_url_names_https(
        self, server: Misbehaving, connect: Connect, tls: Tls
    ) -> None:
        async with proxying(tls=tls[0]) as proxy:
            client = connect(proxy=proxy.url)
            server.will(obj(POD), obj(POD))
            await get(client)
            await get(client)
            await client.close()
        assert [request.connection for request in server.seen] == [1, 1]
        assert len(proxy.heads) == 1

    async def test_a_proxy_gets_the_whole_url_for_a_server_without_tls(
        self, connect: Connect
    ) -> None:
        async with misbehaving.serving() as proxy:
            proxy.will(obj(POD))
            await get(
                connect(server="http://k8s.test/a", proxy=proxy.url.replace("//", "//me:p%40w@"))
            )
        (request,) = proxy.seen
        assert request.target == "http://k8s.test/a/api/v1/namespaces/n/pods/a"
        assert request.headers["host"] == "k8s.test"
        assert request.headers["proxy-authorization"] == "Basic bWU6cEB3"

    async def test_a_proxy_that_refuses_is_unreachable(self, connect: Connect) -> None:
        refusal = b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n"
        async with proxying(refusal) as proxy:
            with pytest.raises(errors.Unreachable, match="407"):
                await get(connect(proxy=proxy.url))

    async def test_a_proxy_that_is_away_is_unreachable(
        self, server: Misbehaving, connect: Connect
    ) -> None:
        with pytest.raises(errors.Unreachable):
            await get(connect(proxy=(await away()).replace("https", "http")))
        assert server.seen == []
