# SPDX-License-Identifier: Apache-2.0
"""Just enough of a Kubernetes client for a story: JSON over HTTPS.

It reads the kubeconfig that the cluster wrote, as any client would. It has no
cache, no retries and no types; what runs for longer than a story needs more.
"""

import base64
import ssl
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import yaml

from refloat.demo.errors import Refused, StoryFailed

JSON = "application/json"
STRATEGIC_MERGE = "application/strategic-merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"

# A list of a few thousand objects is one line; a watch's lines are shorter.
MAX_LINE_BYTES = 16 * 1024 * 1024

ANSWER_SECONDS = 15.0


class Client:
    """A user of one cluster."""

    def __init__(self, kubeconfig: Path) -> None:
        document = yaml.safe_load(kubeconfig.read_bytes())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._session = aiohttp.ClientSession(
            cluster["server"],
            connector=aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=authority)),
            headers={"Authorization": f"Bearer {user['token']}", "User-Agent": "refloat-demo"},
            json_serialize=lambda body: msgspec.json.encode(body).decode(),
            read_bufsize=MAX_LINE_BYTES,
            timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS),
        )

    async def close(self) -> None:
        await self._session.close()

    async def ask(
        self, method: str, path: str, body: Any = None, *, media: str = JSON, accept: str = JSON
    ) -> dict[str, Any]:
        """One request, whatever the answer: an object, a list, a Table or a Status."""
        headers = {"Accept": accept} | ({"Content-Type": media} if body is not None else {})
        try:
            async with self._session.request(method, path, json=body, headers=headers) as response:
                answer: dict[str, Any] = msgspec.json.decode(await response.read())
                return answer
        except (aiohttp.ClientError, TimeoutError) as error:
            raise StoryFailed(f"{method} {path}: {error!r}") from error

    async def do(
        self, method: str, path: str, body: Any = None, *, media: str = JSON, accept: str = JSON
    ) -> dict[str, Any]:
        """One request that must succeed."""
        answer = await self.ask(method, path, body, media=media, accept=accept)
        if answer.get("kind") == "Status" and answer.get("status") == "Failure":
            raise Refused(method, path, answer)
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
        """What is no JSON: a log."""
        async with self._session.get(path) as response:
            text = await response.text()
        if response.status != HTTPStatus.OK:
            raise Refused("GET", path, msgspec.json.decode(text))
        return text

    async def watch(
        self, path: str, revision: str, *, rows: bool = False
    ) -> AsyncIterator[dict[str, Any]]:
        """The events of a collection after a revision, for as long as they are read.

        With `rows` their objects are Tables of one row, which has the object itself too.
        """
        endless = aiohttp.ClientTimeout(total=None)
        query = {"watch": "true", "resourceVersion": revision}
        headers = {}
        if rows:
            query["includeObject"] = "Object"
            headers["Accept"] = TABLE
        async with self._session.get(
            path, params=query, headers=headers, timeout=endless
        ) as response:
            async for line in response.content:
                event = msgspec.json.decode(line)
                if event["type"] == "ERROR":
                    raise Refused("WATCH", path, event["object"])
                yield event
