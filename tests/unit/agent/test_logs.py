# SPDX-License-Identifier: Apache-2.0
"""Logs: which attempt, and which lines."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from refloat.agent import logs
from refloat.agent.logs import CHUNK, LogOptions, NoLog
from refloat.agent.runtime import Attempts, ContainerRecord
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.sim.run import Sim
from tests.virtual import virtual

START = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def line(text: str, second: int = 0, *, tag: str = "F", stream: str = "stdout") -> str:
    return f"2026-01-01T12:00:{second:02}.000000000Z {stream} {tag} {text}\n"


LOG = "".join(
    [
        line("one", 1),
        line("two", 2, stream="stderr"),
        line("thr", 3, tag="P"),
        line("ee", 4),
        line("", 5),
        line("fünf $(x)", 6),
        line("unfinished", 7, tag="P"),
    ]
)

SHOWN = {
    "all of it": (LogOptions(), "one\ntwo\nthree\n\nfünf $(x)\nunfinished"),
    "the last lines of the file": (LogOptions(tail_lines=2), "fünf $(x)\nunfinished"),
    "more lines than there are": (
        LogOptions(tail_lines=100),
        "one\ntwo\nthree\n\nfünf $(x)\nunfinished",
    ),
    "no lines": (LogOptions(tail_lines=0), ""),
    "since a time": (LogOptions(since=START + timedelta(seconds=5)), "\nfünf $(x)\nunfinished"),
    "since between two": (
        LogOptions(since=START + timedelta(seconds=5.5)),
        "fünf $(x)\nunfinished",
    ),
    "since the future": (LogOptions(since=START + timedelta(hours=1)), ""),
    "so many bytes": (LogOptions(limit_bytes=6), "one\ntw"),
    "times, once for a line in parts": (
        LogOptions(timestamps=True, tail_lines=6, limit_bytes=72),
        "2026-01-01T12:00:02.000000000Z two\n2026-01-01T12:00:03.000000000Z three\n",
    ),
}


async def text_of(
    sim: Sim, path: Path, wish: LogOptions, is_running: Callable[[], bool] = lambda: False
) -> str:
    parts = [each async for each in logs.read(path, wish, clock=sim.clock, is_running=is_running)]
    return b"".join(parts).decode()


@virtual()
async def test_a_log_is_shown_as_it_was_asked_for(sim: Sim, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(LOG)
    for case, (wish, want) in SHOWN.items():
        assert await text_of(sim, path, wish) == want, case


@virtual()
async def test_a_line_that_a_full_disk_cut_off_is_left_out(sim: Sim, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(line("one") + "2026-01-01T12\n" + line("two") + "2026-01-01T12:00:00.0")
    assert await text_of(sim, path, LogOptions()) == "one\ntwo\n"


@virtual()
async def test_a_log_of_many_pieces_is_whole(sim: Sim, tmp_path: Path) -> None:
    path = tmp_path / "log"
    texts = [f"{number} {'x' * (number % 300)}" for number in range(3000)]
    long = "y" * (3 * CHUNK)
    path.write_text("".join(map(line, [*texts, long, "end"])))
    assert path.stat().st_size > 5 * CHUNK
    assert await text_of(sim, path, LogOptions()) == "\n".join([*texts, long, "end", ""])
    for count in (1, 2, 3, 500):
        want = "\n".join([*[*texts, long, "end"][-count:], ""])
        assert await text_of(sim, path, LogOptions(tail_lines=count)) == want, count


@virtual()
async def test_a_followed_log_ends_with_its_container(sim: Sim, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(line("one") + line("two"))
    running = True

    async def write() -> None:
        nonlocal running
        await sim.clock.sleep(60)
        with path.open("a") as file:
            file.write(line("three"))
        await sim.clock.sleep(60)
        path.rename(tmp_path / "log.1")
        path.write_text(line("of the next file"))
        with path.open("a") as file:
            file.write(line("last words"))
        running = False

    wish = LogOptions(follow=True, tail_lines=1)
    start = sim.clock.monotonic()
    writing = asyncio.ensure_future(write())
    text = await text_of(sim, path, wish, lambda: running)
    assert text == "two\nthree\nof the next file\nlast words\n"
    assert 120 <= sim.clock.monotonic() - start < 121
    await writing


def pod_with(status: Object | None) -> Pod:
    statuses = [{"name": "c", **status}] if status is not None else []
    body = {"metadata": {"name": "p"}, "status": {"containerStatuses": statuses}}
    return msgspec.json.decode(msgspec.json.encode(body), type=Pod)


def waiting(reason: str) -> Object:
    return {"state": {"waiting": {"reason": reason}}}


RUNS = ContainerRecord(3, started_at=START)
MADE = ContainerRecord(3)
ENDED = ContainerRecord(3, started_at=START, exit_code=1, finished_at=START)
BEFORE = ContainerRecord(2, started_at=START, exit_code=1, finished_at=START)
RUNNING: Object = {"state": {"running": {}}}
TERMINATED: Object = {"state": {"terminated": {"exitCode": 1}}}

FOUND = {
    "it runs": (RUNNING, Attempts(RUNS), False, 3),
    "it has ended": (TERMINATED, Attempts(ENDED, BEFORE), False, 3),
    "it waits for its next start": (waiting("CrashLoopBackOff"), Attempts(ENDED, BEFORE), False, 3),
    "it is being made again": (waiting("ContainerCreating"), Attempts(MADE, BEFORE), False, 2),
    "the one before": (RUNNING, Attempts(RUNS, BEFORE), True, 2),
    "the one before, of one that ended": (TERMINATED, Attempts(ENDED, BEFORE), True, 2),
    "the one before, while it waits": (waiting("CrashLoopBackOff"), Attempts(ENDED), True, 3),
}


@pytest.mark.parametrize(
    ("status", "attempts", "previous", "want"), FOUND.values(), ids=FOUND.keys()
)
def test_the_log_is_that_of(status: Object, attempts: Attempts, previous: bool, want: int) -> None:
    assert logs.attempt(pod_with(status), attempts, "c", previous=previous).attempt == want


C = 'container "c" in pod "p"'
MISSING = {
    "no status yet": (None, None, False, f"{C} is not available"),
    "being made": (
        waiting("ContainerCreating"),
        Attempts(MADE),
        False,
        f"{C} is waiting to start: ContainerCreating",
    ),
    "an image that is not there": (
        waiting("ErrImagePull"),
        None,
        False,
        f"{C} is waiting to start: image can't be pulled",
    ),
    "an image that is waited for": (
        waiting("ImagePullBackOff"),
        None,
        False,
        f"{C} is waiting to start: trying and failing to pull image",
    ),
    "a missing ConfigMap": (
        waiting("CreateContainerConfigError"),
        None,
        False,
        f"{C} is waiting to start: CreateContainerConfigError",
    ),
    "ended, and its log is gone": (TERMINATED, None, False, f"{C} is terminated"),
    "nothing was before": (RUNNING, Attempts(RUNS), True, f"previous terminated {C} not found"),
    "nothing was ever": (
        waiting("ContainerCreating"),
        None,
        True,
        f"previous terminated {C} not found",
    ),
}


@pytest.mark.parametrize(
    ("status", "attempts", "previous", "want"), MISSING.values(), ids=MISSING.keys()
)
def test_a_log_that_is_not_there_is_explained_as_a_kubelet_does(
    status: Object | None, attempts: Attempts | None, previous: bool, want: str
) -> None:
    with pytest.raises(NoLog) as error:
        logs.attempt(pod_with(status), attempts, "c", previous=previous)
    assert str(error.value) == want
