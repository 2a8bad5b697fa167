# SPDX-License-Identifier: Apache-2.0
"""The socket through which `refloat node` makes nodes of an embedded cluster fail.

A unix socket in the data directory, for its owner alone, and not the Kubernetes
API: a right to use the cluster is no right to break its nodes. Containers may run
as the owner, but the socket refuses their processes. A request and its answer are
a line of JSON each.
"""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from refloat.agent.keeper import peer_check
from refloat.app import keepers
from refloat.app.socket_paths import reachable
from refloat.base.errors import RefloatError, UsageError

NAME = "control.sock"

# Longer than any request.
_LIMIT = 4096

Object: TypeAlias = dict[str, Any]
Answer: TypeAlias = Callable[[Object], Object]


class Refused(RefloatError):
    """The cluster refuses the request, with a reason."""


class Control:
    """Answers requests for one cluster."""

    def __init__(self, folder: Path, answer: Answer) -> None:
        self._nodes = folder / "nodes"
        self._path = folder / NAME
        self._answer = answer
        self._server: asyncio.AbstractServer | None = None

    async def start(self) -> None:
        """Listen. The store's lock proves that no other process uses an old socket."""
        self._path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        try:
            with reachable(self._path) as name:
                listener.bind(name)
        finally:
            os.umask(before)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=_LIMIT)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, ValueError):
            line = await reader.readline()  # first: a close with unread data drops the answer
            answer = self._refusal(writer) or self._execute(line)
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        writer.close()

    def _refusal(self, writer: asyncio.StreamWriter) -> Object | None:
        """The answer to a process that may not use the socket."""
        why = peer_check.refusal(writer.get_extra_info("socket"), keepers.all_below(self._nodes))
        return {"error": f"refused: {why}"} if why else None

    def _execute(self, line: bytes) -> Object:
        request = json.loads(line)
        if not isinstance(request, dict):
            return {"error": "a request is an object"}
        try:
            return self._answer(request)
        except RefloatError as error:
            return {"error": str(error)}

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)


def ask(folder: Path, request: Object) -> Object:
    """Send a request to the cluster of a data directory; raises `Refused` with its reason."""
    try:
        with socket.socket(socket.AF_UNIX) as line, reachable(folder / NAME) as name:
            line.connect(name)
            line.sendall(json.dumps(request).encode() + b"\n")
            answer: Object = json.loads(line.makefile().readline())
    except (OSError, ValueError) as error:
        raise UsageError(
            f"no cluster runs on {folder}; start one with `refloat up --data-dir {folder}`"
        ) from error
    if "error" in answer:
        raise Refused(answer["error"])
    return answer
