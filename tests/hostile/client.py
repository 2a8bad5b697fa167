# SPDX-License-Identifier: Apache-2.0
"""The hostile client: requests as bytes, under several identities, with sizes counted."""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from refloat.app import tokens

# The identities that the requests come from. A tenant is a user that the
# administrator impersonates; no rule gives this user any right in a namespace.
TENANT = {"Impersonate-User": "tenant", "Impersonate-Group": "system:authenticated"}

NODES = 100
PATIENCE_SECONDS = 20.0


@dataclass
class AttackTarget:
    """A server and the identities of its clients."""

    port: int
    tls: ssl.SSLContext
    headers: dict[str, dict[str, str]]
    largest: int = 0  # bytes of the largest answer since the last reset
    codes: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, data_dir: Path, port: int) -> "AttackTarget":
        tls = ssl.create_default_context(cafile=str(data_dir / "pki" / "ca.crt"))
        admin = _bearer(tokens.admin_token(data_dir))
        headers = {
            "admin": admin,
            "readonly": _bearer(tokens.readonly_token(data_dir)),
            "tenant": {**admin, **TENANT},
            "anonymous": {},
        }
        for number in range(NODES):
            headers[node(number)] = _bearer(tokens.node_token(data_dir, node(number)))
        return cls(port, tls, headers)

    async def connect(self) -> "HostileConnection":
        return HostileConnection(
            self, *await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls)
        )

    async def ask(self, who: str, method: str, path: str, body: Any = None, **more: str) -> int:
        """One request on a new connection; the status code, 0 without an answer."""
        wire = await self.connect()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                wire.send(who, method, path, body, **more)
                return await wire.answer()
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            return self.note(0, 0)
        finally:
            wire.close()

    def note(self, code: int, size: int) -> int:
        self.largest = max(self.largest, size)
        self.codes[code] = self.codes.get(code, 0) + 1
        return code

    def reset(self) -> None:
        self.largest = 0
        self.codes = {}


@dataclass
class HostileConnection:
    """One connection."""

    target: AttackTarget
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, who: str, method: str, path: str, body: Any = None, **more: str) -> None:
        self.writer.write(request(self.target.headers[who], method, path, body, more))

    def stop_reading(self) -> None:
        self.reader._transport.pause_reading()  # type: ignore[attr-defined]

    async def answer(self) -> int:
        """Read one answer, and count the bytes without keeping them."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        code = int(head.split()[1])
        size = len(head)
        names = dict(line.lower().partition(": ")[::2] for line in head.split("\r\n")[1:])
        if "chunked" in names.get("transfer-encoding", ""):
            size += await self._chunks()
        else:
            size += await self._read(int(names.get("content-length", "0")))
        return self.target.note(code, size)

    async def _chunks(self) -> int:
        total = 0
        while length := int(await self.reader.readline(), 16):
            total += await self._read(length + 2)
        await self.reader.readline()
        return total

    async def _read(self, size: int) -> int:
        remaining = size
        while remaining:
            piece = await self.reader.read(min(remaining, 2**20))
            if not piece:
                raise ConnectionError("the answer broke off")
            remaining -= len(piece)
        return size

    def close(self) -> None:
        self.writer.transport.abort()


def request(
    identity: Mapping[str, str], method: str, path: str, body: Any, more: Mapping[str, str]
) -> bytes:
    raw = b"" if body is None else body if isinstance(body, bytes) else msgspec.json.encode(body)
    headers = {"Host": "x", **identity, "Content-Length": str(len(raw))}
    if raw:
        headers["Content-Type"] = "application/json"
    headers |= {name.replace("_", "-"): value for name, value in more.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + raw


def node(number: int) -> str:
    return f"node-{number}"


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
