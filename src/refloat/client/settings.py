# SPDX-License-Identifier: Apache-2.0
"""How a client over the wire behaves, whichever cluster it talks to."""

from dataclasses import dataclass

import refloat


@dataclass(frozen=True, slots=True)
class Settings:
    """Bounds and manners of one client."""

    component: str = "client"
    """Which part of Refloat asks; the second half of the User-Agent."""
    field_manager: str = "refloat"
    """Who owns the fields that this client writes."""
    qps: float = 20.0
    """Requests a second, over all verbs; 0 is unlimited. As kube-controller-manager."""
    burst: int = 30
    """Requests that may go out at once after a pause. As kube-controller-manager."""
    request_seconds: float = 30.0
    """From the first byte sent to the last one read, for one attempt. An API
    server gives up by itself after 60; half of that frees a worker sooner."""
    watch_idle_seconds: float = 70.0
    """A watch without a byte for so long is dead: bookmarks come once a minute."""
    plugin_seconds: float = 60.0
    """How long a credential plugin may take that nobody talks to."""
    sign_in_seconds: float = 300.0
    """How long a credential plugin may take that asks a person."""
    attempts: int = 5
    """How often a call is tried in all, where it may be repeated."""
    connections: int = 32
    """Connections for requests; more wait. Watches are not counted. As many as keep a server
    busy that answers within 20 ms; each costs 2 ms of CPU to open."""

    @property
    def user_agent(self) -> str:
        return f"refloat/{refloat.__version__} ({self.component})"
