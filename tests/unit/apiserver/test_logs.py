# SPDX-License-Identifier: Apache-2.0
"""`pods/log` from the client through the API server to a node, over TLS, and back."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import msgspec
import pytest

from refloat.agent import logs
from refloat.agent.runtime import Attempts, ContainerRecord
from refloat.agent.server import NodeServer
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.app import certificates, node_tls
from refloat.base.clock import RealClock
from refloat.client.kinds import PODS
from tests import builders, servers

NOW = datetime.now(UTC)
LOGS = "/api/v1/namespaces/default/pods"
STAMP = "2026-01-01T12:00:0{}.000000000Z"
RUNNING = ContainerRecord(1, started_at=NOW)
LINES = [f"{STAMP.format(second)} stdout F line {second}\n" for second in range(5)]


@dataclass
class LogHost:
    """A node with one pod, of whose container there were two attempts."""

    folder: Path
    known: dict[str, Pod] = field(default_factory=dict)
    current: ContainerRecord = RUNNING
    looks: int = 0

    def pod(self, namespace: str, name: str) -> Pod | None:
        return self.known.get(f"{namespace}/{name}")

    def attempts(self, uid: str, container: str) -> Attempts | None:
        self.looks += 1
        before = ContainerRecord(0, started_at=NOW, exit_code=1)
        return Attempts(self.current, before) if container == "main" else None

    def log_file(self, uid: str, container: str, attempt: int) -> Path:
        return self.folder / f"{container}-{attempt}.log"


@dataclass
class LogsApi:
    """An API server and a node, and a client of theirs."""

    session: aiohttp.ClientSession
    url: str
    host: LogHost
    port: int
    """The node's."""

    async def log(self, path: str) -> tuple[int, str]:
        async with self.session.get(f"{self.url}{LOGS}/{path}") as answer:
            return answer.status, await answer.text()

    async def refusal(self, path: str) -> Object:
        async with self.session.get(f"{self.url}{LOGS}/{path}") as answer:
            status: Object = await answer.json()
            assert status["code"] == answer.status
            return status

    async def create(self, path: str, obj: Object) -> Object:
        async with self.session.post(f"{self.url}{path}", json=obj) as answer:
            pod: Object = await answer.json()
            assert answer.status == 201, pod
            return pod


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pki")
    certificates.ensure(folder, "127.0.0.1", NOW)
    return folder


@asynccontextmanager
async def cluster(pki: Path, folder: Path) -> AsyncIterator[LogsApi]:
    """Pod p on node n, which serves; pod q on a node that is off, r on none."""
    (folder / "main-0.log").write_text(f"{STAMP.format(0)} stderr F before\n")
    (folder / "main-1.log").write_text("".join(LINES))
    host = LogHost(folder)
    node = NodeServer(host, clock=RealClock())
    own = certificates.ensure_own(folder, "127.0.0.1", NOW)
    authority = certificates.Paths.below(pki).authority.read_bytes()
    port = await node.start("127.0.0.1", 0, node_tls.context(*own, authority))
    to_nodes = certificates.client_context(*certificates.ensure_client(pki, NOW))
    try:
        async with (
            servers.serving(to_nodes=to_nodes) as api,
            aiohttp.ClientSession(headers={"Authorization": f"Bearer {servers.TOKEN}"}) as session,
        ):
            logs_api = LogsApi(session, f"http://127.0.0.1:{api.port}", host, port)
            await _fill(logs_api)
            yield logs_api
    finally:
        await node.close()


async def _fill(logs_api: LogsApi) -> None:
    for name, status in {
        "n": _reachable(logs_api.port),
        "off": _reachable(9),
        "silent": {},
        "simulated": {"addresses": [{"type": "Hostname", "address": "simulated"}]},
    }.items():
        await logs_api.create("/api/v1/nodes", {"metadata": {"name": name}})
        url = f"{logs_api.url}/api/v1/nodes/{name}/status"
        media = {"Content-Type": "application/merge-patch+json"}
        body = msgspec.json.encode({"status": status})
        async with logs_api.session.patch(url, data=body, headers=media) as answer:
            assert answer.status == 200, await answer.text()
    for name, node in (
        ("p", "n"),
        ("unknown", "n"),
        ("on-off", "off"),
        ("on-silent", "silent"),
        ("on-simulated", "simulated"),
        ("lost", "gone"),
        ("r", ""),
    ):
        pod = await logs_api.create(LOGS, builders.pod(name, node=node))
        if name == "p":
            logs_api.host.known["default/p"] = PODS.decoder.decode(msgspec.json.encode(pod))
    two = builders.pod("two", spec={"initContainers": [{"name": "i", "image": "x"}]})
    two["spec"]["containers"].append({"name": "other", "image": "x"})
    await logs_api.create(LOGS, two)


def _reachable(port: int) -> Object:
    return {
        "addresses": [
            {"type": "Hostname", "address": "no-such-name.invalid"},
            {"type": "InternalIP", "address": "127.0.0.1"},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }


SHOWN = {
    "": "".join(f"line {number}\n" for number in range(5)),
    "?tailLines=2": "line 3\nline 4\n",
    "?previous=true": "before\n",
    "?limitBytes=10": "line 0\nlin",
    "?timestamps=true&tailLines=1": f"{STAMP.format(4)} line 4\n",
    "?sinceTime=2026-01-01T12:00:03Z": "line 3\nline 4\n",
    "?sinceTime=2026-01-01T13:00:03%2B01:00": "line 3\nline 4\n",
    "?sinceSeconds=1": "",
    "?container=main&follow=false&tailLines=1": "line 4\n",
}


async def test_a_log_comes_from_its_node(pki: Path, tmp_path: Path) -> None:
    async with cluster(pki, tmp_path) as node:
        for query, want in SHOWN.items():
            assert await node.log(f"p/log{query}") == (200, want), query
        assert await node.log("r/log") == (204, "")


async def test_a_followed_log_comes_as_it_is_written(pki: Path, tmp_path: Path) -> None:
    async with cluster(pki, tmp_path) as node:
        url = f"{node.url}{LOGS}/p/log?follow=true&tailLines=1"
        async with node.session.get(url) as answer:
            assert await answer.content.readline() == b"line 4\n"
            with (tmp_path / "main-1.log").open("a") as file:
                file.write(f"{STAMP.format(9)} stdout F more\n")
            assert await answer.content.readline() == b"more\n"
            node.host.current = ContainerRecord(1, started_at=NOW, exit_code=0)
            assert await answer.content.read() == b""


INVALID = 'PodLogOptions "p" is invalid'
AT_MOST_ONE = "at most one of `sinceTime` or `sinceSeconds` may be specified"
GET = 'Get "https://127.0.0.1:9/containerLogs/default/on-off/main"'
FORBIDDEN = "Forbidden (user=ann, verb=get, resource=nodes, subresource(s)=[proxy])"

WRONG: dict[str, tuple[int, str, str]] = {
    "nope/log": (404, "NotFound", 'pods "nope" not found'),
    "two/log": (
        400,
        "BadRequest",
        "a container name must be specified for pod two, choose one of: [i main other]",
    ),
    "p/log?container=x": (400, "BadRequest", "container x is not valid for pod p"),
    "p/log?tailLines=-1": (
        422,
        "Invalid",
        f"{INVALID}: tailLines: Invalid value: -1: must be greater than or equal to 0",
    ),
    "p/log?tailLines=x": (400, "BadRequest", 'strconv.ParseInt: parsing "x": invalid syntax'),
    "p/log?tailLines=": (400, "BadRequest", 'strconv.ParseInt: parsing "": invalid syntax'),
    "p/log?limitBytes=0": (
        422,
        "Invalid",
        'PodLogOptions "p" is invalid: limitBytes: Invalid value: 0: must be greater than 0',
    ),
    "p/log?sinceSeconds=0": (
        422,
        "Invalid",
        'PodLogOptions "p" is invalid: sinceSeconds: Invalid value: 0: must be greater than 0',
    ),
    "p/log?sinceSeconds=1&sinceTime=2020-01-01T00:00:00Z": (
        422,
        "Invalid",
        f"{INVALID}: []: Forbidden: {AT_MOST_ONE}",
    ),
    "p/log?sinceTime=x": (
        400,
        "BadRequest",
        'parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"',
    ),
    "p/log?stream=Stdout": (
        422,
        "Invalid",
        'PodLogOptions "p" is invalid: stream: Forbidden: may not be specified',
    ),
    "lost/log": (404, "NotFound", 'pods "gone" not found'),
    "on-silent/log": (500, "", "no preferred addresses found; known addresses: []"),
    "on-off/log": (500, "", f"{GET}: dial tcp 127.0.0.1:9: connect: connection refused"),
    "on-simulated/log": (
        501,
        "NotImplemented",
        'node "simulated" has no logs: it serves none, as simulated nodes do not',
    ),
    "unknown/log": (
        404,
        "NotFound",
        "the server could not find the requested resource ( pods/log unknown)",
    ),
}


async def test_what_cannot_be_answered_is_refused_as_kubernetes_does(
    pki: Path, tmp_path: Path
) -> None:
    async with cluster(pki, tmp_path) as node:
        for path, (code, reason, message) in WRONG.items():
            status = await node.refusal(path)
            actual = (status["code"], status.get("reason", ""), status["message"])
            assert actual == (code, reason, message), path


async def test_a_node_says_why_it_has_no_log(pki: Path, tmp_path: Path) -> None:
    async with cluster(pki, tmp_path) as node:
        node.host.current = ContainerRecord(1)
        (tmp_path / "main-0.log").unlink()
        status = await node.refusal("p/log?previous=true")
        assert status["message"] == "unable to retrieve container logs for main"
        assert status["reason"] == "BadRequest"


def _user(pki: Path, *, trusted: bool) -> ssl.SSLContext:
    """A client that is no API server, perhaps with a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if trusted:
        context.load_cert_chain(*certificates.ensure_client(pki, NOW, user="ann", group="users"))
    return context


@pytest.mark.parametrize(
    ("trusted", "want"),
    [(False, (401, "Unauthorized")), (True, (403, FORBIDDEN))],
    ids=["without a certificate", "with one of somebody else"],
)
async def test_a_node_answers_nobody_but_api_servers(
    pki: Path, tmp_path: Path, trusted: bool, want: tuple[int, str]
) -> None:
    async with cluster(pki, tmp_path) as node:
        url = f"https://127.0.0.1:{node.port}/containerLogs/default/p/main"
        tls = _user(pki, trusted=trusted)
        async with aiohttp.ClientSession() as other, other.get(url, ssl=tls) as answer:
            assert (answer.status, await answer.text()) == want


async def test_a_reader_that_leaves_ends_the_following(pki: Path, tmp_path: Path) -> None:
    async with cluster(pki, tmp_path) as node:
        url = f"{node.url}{LOGS}/p/log?follow=true&tailLines=1"
        async with node.session.get(url) as answer:
            assert await answer.content.readline() == b"line 4\n"
            answer.close()
        async with asyncio.timeout(5):
            looks = -1
            while looks != node.host.looks:
                looks = node.host.looks
                await asyncio.sleep(3 * logs.POLL_SECONDS)
