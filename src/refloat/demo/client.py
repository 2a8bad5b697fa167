# SPDX-License-Identifier: Apache-2.0
"""The client of a demo, with the kubeconfig that the cluster wrote.

Besides the verbs, `DemoClient` sends requests by their paths, as a user of `kubectl --raw`
does, and reads Tables.
"""

from pathlib import Path
from typing import Any

import msgspec

from refloat.api.meta import Object
from refloat.base.clock import Clock
from refloat.base.rand import Rand
from refloat.client import kubeconfig as kubeconfigs
from refloat.client.http import HttpClient
from refloat.client.requests import JSON, Request
from refloat.client.settings import ClientSettings

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"

# Without a limit and without retries: a demo shows the first answer.
_SETTINGS = ClientSettings(
    component="demo", field_manager="refloat-demo", qps=0, attempts=1, request_seconds=15.0
)


class DemoClient(HttpClient):
    """A user of one cluster."""

    def __init__(self, kubeconfig: Path, clock: Clock, rand: Rand) -> None:
        super().__init__(kubeconfigs.load([kubeconfig]), clock=clock, rand=rand, settings=_SETTINGS)

    async def ask(self, method: str, path: str, body: Any = None, *, accept: str = JSON) -> Object:
        """One request; the answer is an object, a list or a Table."""
        content = None if body is None else msgspec.json.encode(body)
        answer: Object = msgspec.json.decode(
            await self._call(Request(method, path, content, accept=accept))
        )
        return answer

    async def table(self, path: str) -> Object:
        return await self.ask("GET", path, accept=TABLE)
