# SPDX-License-Identifier: Apache-2.0
"""The way by which `refloat node` makes nodes of an embedded cluster fail.

A unix socket in the data directory, for its owner alone, and not the
Kubernetes API: whoever may use the cluster may not pull its plugs. Containers may
run as the owner; their processes are refused. A request and its answer are a line
of JSON each.
"""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from refloat.agent.keeper import peers
from refloat.app import keepers
from refloat.app.socket_paths import reachable
from refloat.base.errors import RefloatError, UsageError

NAME = "control.sock"

# Longer than any request.
_LIMIT = 4096

Object: TypeAlias = dict[str, Any]
Answer: TypeAlias = Callable[[Object], Object]


class Refused(RefloatError):
    """The cluster would not, and says why."""


class Control:
    """Answers requests for one cluster."""

    def __init__(self, folder: Path, answer: Answer) -> None:
        self._nodes = folder / "nodes"
        self._path = folder / NAME
        self._answer = answer
        self._server: asyncio.AbstractServer | None = None

    async def start(self) -> None:
        """Listen; what the last process left behind is in nobody's use, the store is locked."""
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
            line = await reader.readline()  # first: else the answer would be lost with it
            told = self._refusal(writer) or self._told(line)
            writer.write(json.dumps(told).encode() + b"\n")
            await writer.drain()
        writer.close()

    def _refusal(self, writer: asyncio.StreamWriter) -> Object | None:
        """What a process is told that may not ask."""
        why = peers.refusal(writer.get_extra_info("socket"), keepers.all_below(self._nodes))
        return {"error": f"refused: {why}"} if why else None

    def _told(self, line: bytes) -> Object:
        asked = json.loads(line)
        if not isinstance(asked, dict):
            return {"error": "a request is an object"}
        try:
            return self._answer(asked)
        except RefloatError as error:
            return {"error": str(error)}

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)


def ask(folder: Path, request: Object) -> Object:
    """Ask the cluster of a data directory; raises `Refused` with its words."""
    try:
        with socket.socket(socket.AF_UNIX) as line, reachable(folder / NAME) as name:
            line.connect(name)
            line.sendall(json.dumps(request).encode() + b"\n")
            told: Object = json.loads(line.makefile().readline())
    except (OSError, ValueError) as error:
        raise UsageError(
            f"no cluster runs on {folder}; start one with `refloat up --data-dir {folder}`"
        ) from error
    if "error" in told:
        raise Refused(told["error"])
    return told
