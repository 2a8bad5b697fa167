# SPDX-License-Identifier: Apache-2.0
"""Publishes what this process is and how it is configured (`config.actors`)."""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from refloat.api.meta import Object
from refloat.base.clock import Clock
from refloat.base.errors import RefloatError
from refloat.base.gates import Gates
from refloat.base.tasks import Tasks
from refloat.client import errors, kinds
from refloat.client.contract import Client
from refloat.config import actors
from refloat.config.actors import Actor
from refloat.config.load import Configuration
from refloat.policy.job.backoff import BackoffSettings

log = logging.getLogger(__name__)

# For the last record of a process: a stop must not wait long for this write.
STOP_SECONDS = 2.0

# The process of `refloat up`. Only one can have the data directory, so the name is unique.
EMBEDDED = "refloat-up"


def embedded(
    client: Client,
    configured: Configuration,
    gates: Gates,
    clock: Clock,
    *,
    controllers: tuple[str, ...],
    period: timedelta,
    node_grace: timedelta,
    delays: BackoffSettings,
) -> "ActorPublisher":
    """The publisher of an embedded cluster, with that cluster's defaults of failure recovery."""
    document = actors.configuration(configured.document, gates, period, node_grace)
    actor = Actor(EMBEDDED, "embedded", clock.now(), controllers, delays=delays)
    return ActorPublisher(client, actor, lambda: document, clock)


class ActorPublisher:
    """Writes the record of this process at the start, at each change, and as a heartbeat."""

    name = "actor-publisher"

    def __init__(
        self, client: Client, actor: Actor, document: Callable[[], Object], clock: Clock
    ) -> None:
        self._client = client
        self._actor = actor
        self._document = document
        self._clock = clock
        self._tasks = Tasks()
        self._is_running = False
        self._failure = ""  # why the last write failed, as it was logged
        self._spare: list[str] = []  # keys of records to remove

    def start(self) -> None:
        self._is_running = True
        self._tasks.spawn(self._beat(), name=self.name)

    def changed(self) -> None:
        """The configuration is new: publish it without waiting for the next heartbeat."""
        if self._is_running:
            self._tasks.spawn(self._publish(), name=self.name)

    async def stop(self, drain_seconds: float = 0.0) -> bool:
        del drain_seconds
        was_running, self._is_running = self._is_running, False
        await self._tasks.close()
        if was_running:
            try:
                async with self._clock.timeout(STOP_SECONDS):
                    await self._publish(stopped=True)
            except TimeoutError:
                log.info("the end of this process is not published: no answer")
        return True

    async def _beat(self) -> None:
        while True:
            await self._publish()
            await self._clock.sleep(actors.HEARTBEAT_SECONDS)

    async def _publish(self, *, stopped: bool = False) -> None:
        """Once. The next heartbeat tries again, so a failure is logged once and not repeated."""
        try:
            await self._write(stopped=stopped)
        except RefloatError as error:
            if str(error) != self._failure:
                log.warning("refloat explain cannot know this process: %s", error)
            self._failure = str(error)
        else:
            self._failure = ""

    async def _write(self, *, stopped: bool) -> None:
        actor = replace(self._actor, seen=self._clock.now(), stopped=stopped)
        key, text = actors.key(actor.identity), actors.write(actor, self._document())
        body: Object = {"data": {**dict.fromkeys(self._spare), key: text}}
        try:
            answer = await self._client.patch(
                kinds.CONFIG_MAPS, actors.NAME, body, namespace=actors.NAMESPACE
            )
        except errors.NotFound:
            new: Object = {"metadata": {"name": actors.NAME}, "data": {key: text}}
            answer = await self._client.create(kinds.CONFIG_MAPS, new, namespace=actors.NAMESPACE)
        self._spare = actors.oldest(answer.data or {}, key)
