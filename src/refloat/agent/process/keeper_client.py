# SPDX-License-Identifier: Apache-2.0
"""The agent's connection to its keeper; starts a keeper if none runs.

The agent does not wait for its keeper: a keeper has its own session, and an
environment without variables of the agent.
"""

import asyncio
import contextlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from refloat.agent.keeper import peer_check, service
from refloat.base.errors import RefloatError

_KEEPER = Path(service.__file__).parent / "__main__.py"

# A list of thousands of containers comes in one line.
_MAX_LINE = 64 * 1024 * 1024

# From the fork to the keeper's first word; it takes some 50 ms.
_START_SECONDS = 30.0


class KeeperError(RefloatError):
    """The keeper refuses a request, or does not run."""

    def __init__(self, message: str, code: str = "Gone") -> None:
        super().__init__(message)
        self.code = code


class KeeperClient:
    """Sends requests, and receives answers and events."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_event: Callable[[dict[str, Any]], object],
        on_close: Callable[["KeeperClient"], object],
    ) -> None:
        self._reader, self._writer = reader, writer
        self._on_event, self._on_close = on_event, on_close
        self._numbers = itertools.count(1)
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._task = asyncio.ensure_future(self._listen())

    def send(self, op: str, **arguments: Any) -> "asyncio.Future[Any]":
        """Send a request. Returns a future of the answer, which may raise `KeeperError`."""
        number = next(self._numbers)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        # Callers need not await the answer, so asyncio must not log its error.
        answer.add_done_callback(lambda future: future.cancelled() or future.exception())
        if self._writer.is_closing():
            answer.set_exception(KeeperError("the keeper is gone"))
            return answer
        self._pending[number] = answer
        request = {"id": number, "op": op, **arguments}
        self._writer.write(json.dumps(request, separators=(",", ":")).encode() + b"\n")
        return answer

    def ignore(self) -> None:
        """Drop all further events."""
        self._on_event = lambda _: None
        self._on_close = lambda _: None

    async def ended(self) -> None:
        """Wait until the keeper has closed the connection."""
        await self._task

    async def close(self) -> None:
        self._task.cancel()
        self._writer.close()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._fail()

    async def _listen(self) -> None:
        try:
            while line := await self._reader.readline():
                self._take(json.loads(line))
        except (OSError, ValueError):
            pass  # the connection broke in the middle of a line
        self._writer.close()
        self._fail()
        self._on_close(self)

    def _take(self, message: dict[str, Any]) -> None:
        if "event" in message:
            self._on_event(message)
            return
        answer = self._pending.pop(message["id"], None)
        if answer is None or answer.done():
            return
        if "error" in message:
            answer.set_exception(KeeperError(message["error"], message["code"]))
        else:
            answer.set_result(message["ok"])

    def _fail(self) -> None:
        answers, self._pending = self._pending, {}
        for answer in answers.values():
            if not answer.done():
                answer.set_exception(KeeperError("the keeper is gone"))


async def connect(
    folder: Path,
    on_event: Callable[[dict[str, Any]], object],
    on_close: Callable[[KeeperClient], object],
    *,
    options: Sequence[str] = (),
) -> KeeperClient:
    """Connect to the keeper of a folder; start one with these options if none runs."""
    try:
        reader, writer = await _open(folder)
    except OSError as refusal:
        loop = asyncio.get_running_loop()
        word = await loop.run_in_executor(None, _launch, folder, options)
        if word not in service.GOOD_WORDS:
            text = f"{folder}: the keeper did not start; see {folder / 'keeper.log'}"
            raise KeeperError(text) from refusal
        try:
            reader, writer = await _open(folder)
        except OSError as error:
            raise KeeperError(f"{folder / service.SOCKET}: {error}") from error
    return KeeperClient(reader, writer, on_event, on_close)


async def _open(folder: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    # The kernel limits the path of a socket to 108 bytes; the folder's path may be longer.
    descriptor = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:
        path = f"/proc/self/fd/{descriptor}/{service.SOCKET}"
        reader, writer = await asyncio.open_unix_connection(path, limit=_MAX_LINE)
    finally:
        os.close(descriptor)
    _, uid = peer_check.credentials(writer.get_extra_info("socket"))
    if uid not in (0, os.geteuid()):
        writer.close()
        raise KeeperError(f"{folder / service.SOCKET}: user {uid} listens there")
    return reader, writer


def _launch(folder: Path, options: Sequence[str]) -> bytes:
    """Start a keeper and wait until a keeper listens. Returns the word that it prints."""
    log = os.open(folder / "keeper.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        # The first process forks the keeper and ends, so the agent never has to reap a keeper.
        done = subprocess.run(  # noqa: S603 - our own interpreter and file
            [sys.executable, "-S", "-E", "-s", str(_KEEPER), str(folder), *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
            cwd="/",
            start_new_session=True,
            timeout=_START_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return b""
    finally:
        os.close(log)
    return done.stdout
