# SPDX-License-Identifier: Apache-2.0
"""Kill a process that writes to a store, open the store, compare; many times.

Run as a separate process, because this module forks: `kill_rounds PATH ROUNDS SEED`.
The child reports every acknowledged write and every change that
a watch showed, through a pipe that outlives the child.
"""

import asyncio
import itertools
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from refloat.store import errors
from refloat.store.contract import Store
from refloat.store.sqlite import SqliteStore

WRITERS = 6

# The life of a key: the value after each step, None when the key is deleted.
STEPS = (b"created" * 10, b"updated" * 50, None)


async def child(path: Path, out: int, life: str) -> None:
    store = await SqliteStore.open(path)
    watch = store.watch("", after=store.revision)

    async def write(writer: int) -> None:
        for n in itertools.count():
            key = f"{life}/{writer}/{n}"
            entry = await store.create(key, STEPS[0] or b"")
            os.write(out, b"done %s 0\n" % key.encode())
            entry = await store.update(key, STEPS[1] or b"", expected=entry.revision)
            os.write(out, b"done %s 1\n" % key.encode())
            if n % 2:
                await store.delete(key, expected=entry.revision)
                os.write(out, b"done %s 2\n" % key.encode())

    async def show() -> None:
        async for batch in watch:
            for event in batch:
                os.write(out, b"seen %s %d\n" % (event.key.encode(), event.revision))

    async def compact() -> None:
        while True:
            await store.compact(max(0, store.revision - 20))
            await asyncio.sleep(0.001)

    await asyncio.gather(show(), compact(), *(write(n) for n in range(WRITERS)))


def run_and_kill(path: Path, life: str, chance: random.Random) -> list[list[str]]:
    """All words that the child reported before the kill, by line."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        asyncio.run(child(path, writer, life))
        os._exit(1)
    os.close(writer)
    lines = chance.choice([0, 1, 5, 20, 50, 100])
    output = b""
    while output.count(b"\n") < lines:
        output += os.read(reader, 65536)
    time.sleep(chance.random() * 0.005)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), "the child ended by itself"
    while more := os.read(reader, 65536):
        output += more
    os.close(reader)
    return [line.split() for line in output.decode().split("\n")[:-1]]


def settle(report: list[list[str]], now: dict[str, bytes], before: dict[str, bytes]) -> None:
    """Every acknowledged write is there, and at most the next step of each writer."""
    done: dict[str, int] = {}
    for kind, key, number in report:
        if kind == "done":
            done[key] = int(number)
    for key, step in done.items():
        value = now.get(key)
        possible = STEPS[step : step + 2] if int(key.split("/")[2]) % 2 else STEPS[step : step + 1]
        if step == 0:
            possible = STEPS[0:2]
        assert value in possible, f"{key} after step {step}: {value!r}"
    unknown = now.keys() - done.keys() - before.keys()
    assert len(unknown) <= WRITERS, "each writer has one write in flight"
    for key in before.keys() - done.keys():
        assert now.get(key) == before[key], f"{key} of an earlier round has changed"


def check_seen(report: list[list[str]], store: Store) -> None:
    changes = {e.revision: e.key for e in store.events("", after=store.compacted)}
    for kind, key, number in report:
        if kind == "seen":
            assert int(number) <= store.revision, f"a watch showed {number}, which is gone"
            if int(number) > store.compacted:
                assert changes[int(number)] == key


async def check(path: Path, report: list[list[str]], before: dict[str, bytes]) -> dict[str, bytes]:
    store = await SqliteStore.open(path)
    now = {entry.key: entry.value for entry in store.page("").entries}
    settle(report, now, before)
    check_seen(report, store)
    await store.close()
    return now


def rounds(path: Path, count: int, seed: int) -> Iterator[int]:
    """How many writes each round has acknowledged."""
    chance = random.Random(seed)
    state: dict[str, bytes] = {}
    for life in range(count):
        report = run_and_kill(path, str(life), chance)
        state = asyncio.run(check(path, report, state))
        yield sum(kind == "done" for kind, *_ in report)


def main() -> None:
    path, count, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    try:
        acknowledged = list(rounds(path, count, seed))
    except (AssertionError, errors.StoreError) as error:
        sys.exit(f"seed {seed}: {error!r}")
    sys.stdout.write(f"{len(acknowledged)} {sum(acknowledged)}\n")


if __name__ == "__main__":
    main()
