# SPDX-License-Identifier: Apache-2.0
"""Kill a server during writes and TLS watches, start the next one, compare; many times.

Run as a separate process, because this module forks: `server_kill_rounds DIR ROUNDS SEED`.
Each round is a `refloat up` in a forked child, which saves the time of the
imports. During a round, writers create, change and delete, and watches look on;
then the server is killed. The next child must hold every write that was acknowledged,
and must send to watches every event that the killed one has sent.
"""

import asyncio
import itertools
import json
import os
import random
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp

from refloat.cli import up
from tests import builders
from tests.e2e import objects

WRITERS = 6
KINDS = ("configmaps", "pods")
NAMESPACE = "/api/v1/namespaces/default"
CREATED, CHANGED, DELETED = range(3)
MERGE = {"Content-Type": "application/merge-patch+json"}
GONE = (aiohttp.ClientError, ConnectionError, asyncio.IncompleteReadError)

Sight: TypeAlias = tuple[str, str, str]  # what a watch shows: type, name, resourceVersion


@dataclass
class Ack:
    """The last write of an object that was acknowledged."""

    step: int
    version: str


@dataclass
class ServerLog:
    """All answers and events of a server before the kill."""

    since: dict[str, str] = field(default_factory=dict)
    acks: dict[str, Ack] = field(default_factory=dict)
    seen: dict[str, list[Sight]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    count: int = 0


# -- the server ----------------------------------------------------------


class KilledServer:
    """A forked `refloat up` that is ready."""

    def __init__(self, data_dir: Path) -> None:
        reader, writer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(reader)
            os.dup2(writer, sys.stdout.fileno())
            # No controller may write, and no keeper may outlive a kill.
            alone = ["--controllers", "none", "--nodes", "0"]
            up.command.main(["--data-dir", str(data_dir), *alone], standalone_mode=False)
            os._exit(1)
        self._alive = True
        os.close(writer)
        output = b""
        while b"Ctrl-C" not in output:
            more = os.read(reader, 65536)
            assert more, "the server has ended by itself"
            output += more
        os.close(reader)
        self.url = output.split(b"\n")[0].rpartition(b" ")[2].decode()

    def kill(self) -> None:
        """Kill the process, unless it was killed: another process may have the id by now."""
        if self._alive:
            self._alive = False
            os.kill(self._pid, signal.SIGKILL)
            _, status = os.waitpid(self._pid, 0)
            assert os.WIFSIGNALED(status), "the server has ended by itself"


# -- the clients ---------------------------------------------------------


class KillRoundsClient:
    """What writers and watches ask for."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def ask(self, method: str, path: str, body: Any = None, **how: Any) -> Any:
        async with self._session.request(method, f"{NAMESPACE}/{path}", json=body, **how) as answer:
            text = await answer.text()
            assert answer.status < 300, f"{method} {path}: {text}"
            return json.loads(text)

    async def watch(self, kind: str, since: str) -> AsyncIterator[Sight]:
        query = {"watch": "true", "resourceVersion": since}
        async with self._session.get(f"{NAMESPACE}/{kind}", params=query) as stream:
            async for line in stream.content:
                event = json.loads(line)
                metadata = event["object"]["metadata"]
                yield event["type"], metadata["name"], metadata["resourceVersion"]


def made(kind: str, name: str) -> objects.Object:
    return (
        builders.pod(name) if kind == "pods" else builders.config_map(name, data={"a": "x" * 100})
    )


async def write(client: KillRoundsClient, log: ServerLog, kind: str, prefix: str) -> None:
    """One life after another, until the server is gone."""

    def done(step: int, answer: Any) -> None:
        version = answer["metadata"].get("resourceVersion", "")
        log.acks[f"{kind}/{name}"] = Ack(step, version)
        log.count += 1

    for n in itertools.count():
        name = f"{prefix}-{n}"
        done(CREATED, await client.ask("POST", kind, made(kind, name)))
        patch = {"metadata": {"annotations": {"step": "changed"}}}
        changed = await client.ask("PATCH", f"{kind}/{name}", patch, headers=MERGE)
        done(CHANGED, changed)
        if n % 2:
            done(DELETED, await client.ask("DELETE", f"{kind}/{name}"))


async def look_on(client: KillRoundsClient, log: ServerLog, kind: str) -> None:
    async for sight in client.watch(kind, log.since[kind]):
        log.seen[kind].append(sight)


async def until_killed(
    client: KillRoundsClient, server: KilledServer, life: int, chance: random.Random
) -> ServerLog:
    """Write and watch, then kill after some writes; returns the log until then."""
    log = ServerLog()
    for kind in KINDS:
        log.since[kind] = (await client.ask("GET", f"{kind}?limit=1"))["metadata"][
            "resourceVersion"
        ]
    work = [look_on(client, log, kind) for kind in KINDS]
    for number in range(WRITERS):
        work.append(write(client, log, KINDS[number % 2], f"r{life}-w{number}"))
    tasks = [asyncio.ensure_future(each) for each in work]
    enough = chance.choice([0, 1, 5, 20, 50, 100])
    while log.count < enough and not any(task.done() for task in tasks):
        await asyncio.sleep(0.001)
    await asyncio.sleep(chance.random() * 0.01)
    server.kill()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if outcome is not None and not isinstance(outcome, GONE):
            raise outcome
    return log


# -- the comparison ------------------------------------------------------


@dataclass
class Held:
    """An object after the restart."""

    step: int
    version: str

    @staticmethod
    def of(metadata: objects.Object) -> "Held":
        if "deletionTimestamp" in metadata:
            # A pod is marked before it is removed, as in Kubernetes: two writes.
            return Held(DELETED, metadata["resourceVersion"])
        changed = "step" in metadata.get("annotations", {})
        return Held(CHANGED if changed else CREATED, metadata["resourceVersion"])


State: TypeAlias = dict[str, Held]


async def check(client: KillRoundsClient, log: ServerLog, life: int, before: State) -> State:
    """Compare the server with the log of the killed one; returns the current state."""
    now: State = {}

    async def look(kind: str) -> None:
        for item in (await client.ask("GET", kind))["items"]:
            metadata = item["metadata"]
            now[f"{kind}/{metadata['name']}"] = Held.of(metadata)
        await check_seen(client, log, kind, life)

    await asyncio.gather(*map(look, KINDS))
    for name, ack in log.acks.items():
        check_ack(name, ack, now.get(name))
    for name, obj in before.items():
        assert name in log.acks or now.get(name) == obj, f"{name} is not as it was"
    unknown = now.keys() - before.keys() - log.acks.keys()
    assert len(unknown) <= WRITERS, f"each writer has one write in flight: {unknown}"
    return now


def check_ack(name: str, ack: Ack, obj: Held | None) -> None:
    """The object is as acknowledged, or one step further."""
    assert ack.step != DELETED or obj is None, f"{name} was deleted and is there"
    last = DELETED if int(name.rpartition("-")[2]) % 2 else CHANGED
    step = obj.step if obj is not None else DELETED
    assert ack.step <= step <= min(ack.step + 1, last), f"{name}: {ack}, now {obj}"
    if obj is not None and step == ack.step:
        assert obj.version == ack.version, f"{name}: {ack}, now {obj}"


async def check_seen(client: KillRoundsClient, log: ServerLog, kind: str, life: int) -> None:
    """A watch from the same version begins with the same events."""
    marker = f"marker-{life}"
    await client.ask("POST", kind, made(kind, marker))
    await client.ask("DELETE", f"{kind}/{marker}")
    again: list[Sight] = []
    async for sight in client.watch(kind, log.since[kind]):
        if sight[1] == marker:
            break
        again.append(sight)
    events = log.seen[kind]
    assert again[: len(events)] == events, f"{kind}: watches have shown what is not there"
    names = {f"{kind}/{name}" for _, name, _ in again}
    assert {name for name in log.acks if name.startswith(kind)} <= names


# -- the rounds ----------------------------------------------------------


class Rounds:
    """One life of the server after another, on one directory."""

    def __init__(self, data_dir: Path, seed: int) -> None:
        self._data_dir = data_dir
        self._chance = random.Random(seed)
        self._state: State = {}
        self._told: ServerLog | None = None
        self.acknowledged = 0
        self.seen = 0

    def run(self, life: int) -> None:
        server = KilledServer(self._data_dir)
        try:
            asyncio.run(self._live(server, life))
        finally:
            server.kill()

    async def _live(self, server: KilledServer, life: int) -> None:
        token = (self._data_dir / "admin.token").read_text()
        context = ssl.create_default_context(cafile=self._data_dir / "pki" / "ca.crt")
        async with aiohttp.ClientSession(
            server.url,
            headers={"Authorization": f"Bearer {token}"},
            connector=aiohttp.TCPConnector(ssl=context, limit=0),
            timeout=aiohttp.ClientTimeout(total=30),
        ) as session:
            client = KillRoundsClient(session)
            if self._told is not None:
                self._state = await check(client, self._told, life, self._state)
            self._told = await until_killed(client, server, life, self._chance)
        self.acknowledged += self._told.count
        self.seen += sum(map(len, self._told.seen.values()))


def main() -> None:
    data_dir, count, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    rounds = Rounds(data_dir, seed)
    for life in range(count + 1):  # the last one checks the one before
        try:
            rounds.run(life)
        except AssertionError as error:
            sys.exit(f"seed {seed}, round {life}: {error}")
        if sys.stderr.isatty():
            sys.stderr.write(f"\rkilled {life}/{count}, {rounds.acknowledged} writes")
    sys.stdout.write(f"{count} {rounds.acknowledged} {rounds.seen}\n")


if __name__ == "__main__":
    main()
