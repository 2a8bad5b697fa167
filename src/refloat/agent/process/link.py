# SPDX-License-Identifier: Apache-2.0
"""The agent's line to its keeper: it finds the one that runs, or starts one.

A keeper is no child of the agent's to wait for: it is in a session of its
own, with an environment that holds nothing of the agent's.
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

from refloat.agent.keeper import peers, service
from refloat.base.errors import RefloatError

_KEEPER = Path(service.__file__).parent / "__main__.py"

# A list of thousands of containers comes in one line.
_MAX_LINE = 64 * 1024 * 1024

# From the fork to the keeper's first word; it takes some 50 ms.
_START_SECONDS = 30.0


class KeeperError(RefloatError):
    """The keeper refused, or is not there."""

    def __init__(self, message: str, code: str = "Gone") -> None:
        super().__init__(message)
        self.code = code


class Link:
    """Asks, and hears what the keeper tells unasked."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        heard: Callable[[dict[str, Any]], object],
        lost: Callable[["Link"], object],
    ) -> None:
        self._reader, self._writer = reader, writer
        self._heard, self._lost = heard, lost
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._task = asyncio.ensure_future(self._listen())

    def send(self, op: str, **arguments: Any) -> "asyncio.Future[Any]":
        """Ask now; the answer comes later, or `KeeperError`."""
        number = next(self._numbers)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        # Nobody need wait for it: a failure is not to be reported as forgotten.
        answer.add_done_callback(_looked_at)
        if self._writer.is_closing():
            answer.set_exception(KeeperError("the keeper is gone"))
            return answer
        self._asked[number] = answer
        request = {"id": number, "op": op, **arguments}
        self._writer.write(json.dumps(request, separators=(",", ":")).encode() + b"\n")
        return answer

    def ignore(self) -> None:
        """Hear nothing any more."""
        self._heard = lambda _: None
        self._lost = lambda _: None

    async def ended(self) -> None:
        """Until the keeper has hung up."""
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
            pass  # cut in the middle of a line: as gone as if between two
        self._writer.close()
        self._fail()
        self._lost(self)

    def _take(self, message: dict[str, Any]) -> None:
        if "event" in message:
            self._heard(message)
            return
        answer = self._asked.pop(message["id"], None)
        if answer is None or answer.done():
            return
        if "error" in message:
            answer.set_exception(KeeperError(message["error"], message["code"]))
        else:
            answer.set_result(message["ok"])

    def _fail(self) -> None:
        asked, self._asked = self._asked, {}
        for answer in asked.values():
            if not answer.done():
                answer.set_exception(KeeperError("the keeper is gone"))


def _looked_at(answer: "asyncio.Future[Any]") -> None:
    if not answer.cancelled():
        answer.exception()


async def connect(
    folder: Path,
    heard: Callable[[dict[str, Any]], object],
    lost: Callable[[Link], object],
    *,
    options: Sequence[str] = (),
) -> Link:
    """To the keeper of this folder; starts it, with these options, if there is none."""
    try:
        reader, writer = await _open(folder)
    except OSError:
        await _start(folder, options)
        try:
            reader, writer = await _open(folder)
        except OSError as error:
            raise KeeperError(f"{folder / service.SOCKET}: {error}") from error
    return Link(reader, writer, heard, lost)


async def _open(folder: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    # A socket's path is short by law, a folder's is not.
    descriptor = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:
        path = f"/proc/self/fd/{descriptor}/{service.SOCKET}"
        reader, writer = await asyncio.open_unix_connection(path, limit=_MAX_LINE)
    finally:
        os.close(descriptor)
    _, uid = peers.credentials(writer.get_extra_info("socket"))
    if uid not in (0, os.geteuid()):
        writer.close()
        raise KeeperError(f"{folder / service.SOCKET}: user {uid} listens there")
    return reader, writer


async def _start(folder: Path, options: Sequence[str]) -> None:
    """Until it says that it listens, or another does; or gives up."""
    loop = asyncio.get_running_loop()
    said = await loop.run_in_executor(None, _launch, folder, options)
    if said not in service.GOOD_WORDS:
        raise KeeperError(f"{folder}: the keeper did not start; see {folder / 'keeper.log'}")


def _launch(folder: Path, options: Sequence[str]) -> bytes:
    log = os.open(folder / "keeper.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        # What is waited for is a first process that forks and ends: nobody has to reap a keeper.
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
