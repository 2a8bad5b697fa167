# SPDX-License-Identifier: Apache-2.0
"""The settings of a client over the wire."""

from dataclasses import dataclass

import refloat


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The names and bounds of one client."""

    component: str = "client"
    """The part of Refloat that uses the client; the second half of the User-Agent."""
    field_manager: str = "refloat"
    """The owner of the fields that this client writes."""
    qps: float = 20.0
    """Requests a second, over all verbs; 0 is unlimited. As kube-controller-manager."""
    burst: int = 30
    """Requests that may go out at once after a pause. As kube-controller-manager."""
    request_seconds: float = 30.0
    """From the first byte sent to the last one read, for one attempt. An API
    server gives up after 60 s; half of that frees a worker sooner."""
    watch_idle_seconds: float = 70.0
    """A watch without a byte for so long is dead: bookmarks come once a minute."""
    plugin_seconds: float = 60.0
    """How long a credential plugin may take that asks no person."""
    sign_in_seconds: float = 300.0
    """How long a credential plugin may take that asks a person."""
    attempts: int = 5
    """Attempts of a repeatable call, with the first."""
    connections: int = 32
    """Connections for requests; more wait. Watches are not counted. As many as keep a server
    busy that answers within 20 ms; each costs 2 ms of CPU to open."""

    @property
    def user_agent(self) -> str:
        return f"refloat/{refloat.__version__} ({self.component})"
