# SPDX-License-Identifier: Apache-2.0
"""What carries requests to one server: `direct`, or `proxied` through a proxy.

Failures below HTTP are errors of the operating system (`OSError`), whoever
carries; what they mean for a request is `transport`'s business.
"""

from typing import Protocol

from refloat.client.answers import Answer
from refloat.client.credentials import Header, Identity
from refloat.client.requests import JSON, Request


class NotConnected(OSError):
    """There was no connection, so nothing was sent."""


class Broken(OSError):
    """The connection ended before the answer was complete."""


class Stream(Protocol):
    """An answer that is read as it comes."""

    @property
    def status(self) -> int | None:
        """Its code; None as long as there is no head."""

    async def read(self) -> bytes:
        """The next piece of the body; empty at its end."""

    async def rest(self) -> Answer:
        """All of the body, if nothing was read of it."""

    def close(self) -> None:
        """End it at once, also for whoever waits for a piece: that one gets an `OSError`."""


class Carrier(Protocol):
    async def exchange(self, request: Request, identity: Identity) -> Answer:
        """Send a request, after the fence was asked, and read its answer whole."""

    async def stream(self, request: Request, identity: Identity) -> Stream:
        """Send a request; its answer from the head on."""

    async def close(self) -> None:
        """End all connections, also those in use."""


def headers(identity: Identity, user_agent: str) -> list[Header]:
    """What all requests of an identity have; one name may be there several times."""
    return [
        *identity.headers,
        ("Accept", JSON),
        # In a cluster's network, compressing costs both sides more than sending.
        ("Accept-Encoding", "identity"),
        ("User-Agent", user_agent),
    ]
