# SPDX-License-Identifier: Apache-2.0
"""Tells the cluster by which configuration this Refloat goes (`config.announced`)."""

import logging
from datetime import timedelta

from refloat.api.meta import Object
from refloat.base.clock import Clock
from refloat.base.errors import RefloatError
from refloat.base.gates import Gates
from refloat.base.tasks import Tasks
from refloat.client import kinds
from refloat.client.contract import Client
from refloat.config import announced
from refloat.config.load import Configuration

log = logging.getLogger(__name__)

# It is for people who ask: nothing waits for it, so it need not hurry either.
RETRY_SECONDS = 30.0

# The namespace that every cluster has for what belongs to itself.
SYSTEM = "kube-system"


def embedded(
    client: Client,
    configured: Configuration,
    gates: Gates,
    clock: Clock,
    *,
    period: timedelta,
    node_grace: timedelta,
) -> "Announcer":
    """The one of an embedded cluster, with its defaults of failure recovery."""
    body = announced.body(configured.document, gates, period, node_grace)
    return Announcer(client, SYSTEM, body, clock)


class Announcer:
    """Writes one ConfigMap when it starts, and again when what it says changes."""

    name = "configuration-announcer"

    def __init__(self, client: Client, namespace: str, body: Object, clock: Clock) -> None:
        self._client = client
        self._namespace = namespace
        self._body = body
        self._clock = clock
        self._tasks = Tasks()
        self._running = False

    def start(self) -> None:
        self._running = True
        self._tasks.spawn(self._tell(self._body), name=self.name)

    def take_up(self, body: Object) -> None:
        """Say this from now on."""
        self._body = body
        if self._running:
            self._tasks.spawn(self._tell(body), name=self.name)

    async def _tell(self, body: Object) -> None:
        """Until it is said, or something newer is to be said."""
        told = False
        while body is self._body:
            try:
                await self._client.patch(
                    kinds.CONFIG_MAPS,
                    announced.NAME,
                    body,
                    patch_type="apply",
                    namespace=self._namespace,
                    force=True,
                )
            except RefloatError as error:
                if not told:
                    log.warning("refloat explain will not know the configuration: %s", error)
                told = True
                await self._clock.sleep(RETRY_SECONDS)
            else:
                return

    async def stop(self, drain_seconds: float = 0.0) -> bool:
        self._running = False
        await self._tasks.close()
        return True
