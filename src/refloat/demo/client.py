# SPDX-License-Identifier: Apache-2.0
"""A small Kubernetes client for demos: JSON over HTTPS.

`DemoClient` reads the kubeconfig that the cluster wrote, as any client would.
It has no cache, no retries and no types; a longer-lived program needs those.
"""

import contextlib
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec

from refloat.base.clock import Clock
from refloat.client import kubeconfig as kubeconfigs
from refloat.client.credentials import Identity
from refloat.client.request_sender import RequestSender
from refloat.client.requests import JSON, Request
from refloat.client.response_parser import Answer
from refloat.client.tls import Tls
from refloat.client.watch_stream import Lines
from refloat.demo.errors import DemoFailed, RequestRefused

STRATEGIC_MERGE = "application/strategic-merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"

ANSWER_SECONDS = 15.0


class DemoClient:
    """A user of one cluster."""

    def __init__(self, kubeconfig: Path, clock: Clock) -> None:
        access = kubeconfigs.load([kubeconfig])
        self._clock = clock
        self._identity = Identity((("Authorization", f"Bearer {access.user.token}"),))
        tls = Tls(access.cluster, clock)
        self._sender = RequestSender(
            access.cluster.server, tls=tls.context, clock=clock, user_agent="refloat-demo"
        )

    async def close(self) -> None:
        await self._sender.close()

    async def _exchange(self, request: Request) -> Answer:
        try:
            async with self._clock.timeout(ANSWER_SECONDS):
                return await self._sender.exchange(request, self._identity)
        except OSError as error:
            raise DemoFailed(f"{request}: {error!r}") from error

    async def ask(
        self, method: str, path: str, body: Any = None, *, media: str = JSON, accept: str = JSON
    ) -> dict[str, Any]:
        """One request, whatever the answer: an object, a list, a Table or a Status."""
        content = None if body is None else msgspec.json.encode(body)
        answer = await self._exchange(Request(method, path, content, media, accept=accept))
        document: dict[str, Any] = msgspec.json.decode(answer.body)
        return document

    async def do(
        self, method: str, path: str, body: Any = None, *, media: str = JSON, accept: str = JSON
    ) -> dict[str, Any]:
        """One request that must succeed."""
        answer = await self.ask(method, path, body, media=media, accept=accept)
        if answer.get("kind") == "Status" and answer.get("status") == "Failure":
            raise RequestRefused(method, path, answer)
        return answer

    async def get(self, path: str) -> dict[str, Any]:
        return await self.do("GET", path)

    async def create(self, path: str, obj: Any) -> dict[str, Any]:
        return await self.do("POST", path, obj)

    async def patch(self, path: str, change: Any) -> dict[str, Any]:
        return await self.do("PATCH", path, change, media=STRATEGIC_MERGE)

    async def delete(self, path: str, options: Any = None) -> dict[str, Any]:
        return await self.do("DELETE", path, options)

    async def table(self, path: str) -> dict[str, Any]:
        return await self.do("GET", path, accept=TABLE)

    async def text(self, path: str) -> str:
        """A log, which is no JSON."""
        answer = await self._exchange(Request("GET", path, accept="*/*"))
        if answer.status != HTTPStatus.OK:
            raise RequestRefused("GET", path, msgspec.json.decode(answer.body))
        return answer.body.decode()

    async def watch(
        self, path: str, revision: str, *, rows: bool = False
    ) -> AsyncIterator[dict[str, Any]]:
        """The events of a collection after a revision, for as long as they are read.

        With `rows` their objects are Tables of one row, which has the object itself too.
        """
        query = {"watch": "true", "resourceVersion": revision}
        if rows:
            query["includeObject"] = "Object"
        request = Request("GET", f"{path}?{urlencode(query)}", accept=TABLE if rows else JSON)
        stream, lines = await self._sender.stream(request, self._identity), Lines()
        with contextlib.closing(stream):
            while piece := await stream.read():
                for line in lines.feed(piece):
                    event = msgspec.json.decode(line)
                    if event.get("type", "ERROR") == "ERROR":
                        raise RequestRefused("WATCH", path, event.get("object", event))
                    yield event
