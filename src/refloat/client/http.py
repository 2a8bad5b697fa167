# SPDX-License-Identifier: Apache-2.0
"""The verbs over the wire, to any API server."""

from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

from refloat.base.clock import Clock
from refloat.base.rand import Rand
from refloat.client import cluster_access, contract
from refloat.client.contract import Kind
from refloat.client.requests import Request
from refloat.client.settings import ClientSettings
from refloat.client.transport import Transport
from refloat.client.verbs import Verbs
from refloat.client.watch_stream import HttpWatch

T = TypeVar("T")


class HttpClient(Verbs):
    """A `contract.Client` for the cluster that an `Access` describes."""

    def __init__(
        self,
        where: cluster_access.Access,
        *,
        clock: Clock,
        rand: Rand,
        settings: ClientSettings | None = None,
    ) -> None:
        self._settings = settings or ClientSettings()
        super().__init__(self._settings.field_manager)
        self._clock = clock
        self._transport = Transport(where, clock, rand, self._settings)

    async def _call(self, request: Request) -> bytearray:
        return await self._transport.call(request)

    def _open(self, request: Request, kind: Kind[T]) -> contract.Watch[T]:
        idle = self._settings.watch_idle_seconds
        return HttpWatch(self._transport, request, kind, self._clock, idle)

    def server_now(self) -> datetime | None:
        """The time in the API server's last answer; None without one."""
        try:
            return parsedate_to_datetime(self._transport.date)
        except ValueError:
            return None

    async def close(self) -> None:
        await self._transport.close()
