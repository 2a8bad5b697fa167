# SPDX-License-Identifier: Apache-2.0
"""Carries out the requests of the control socket that make nodes fail and return.

All simulated nodes belong to one fleet; nodes that run processes are processes
themselves (`agent_supervisor`). Both take the same requests.
"""

import signal
from typing import Literal, Protocol, TypeAlias

from refloat.app.control_socket import Object, Refused

CUT, MEND = signal.SIGUSR1, signal.SIGUSR2
"""The signals that cut an agent off from the API server, and end that."""

Fault: TypeAlias = Literal["crash", "freeze", "partition"]


class Nodes(Protocol):
    """Nodes that can fail on request."""

    def names(self) -> list[str]: ...

    def fault(self, name: str) -> str | None: ...

    def fail(self, name: str, fault: Fault) -> None: ...

    def heal(self, name: str) -> None: ...


class Processes(Nodes, Protocol):
    def shut_down(self, name: str) -> None: ...

    def is_off(self, name: str) -> bool: ...


def execute(fleet: Nodes | None, request: Object, agents: Processes | None = None) -> Object:
    """Make a node fail or return; raises `Refused`."""
    name, verb = request.get("node"), request.get("do")
    nodes = next((each for each in (agents, fleet) if each and name in each.names()), None)
    if nodes is None or name is None:
        names = [each for some in (agents, fleet) if some for each in some.names()]
        known = "this cluster has none; `refloat up --simulated-nodes 3` has three"
        if names:
            rest = " and others" if len(names) > 5 else ""
            known = f"there are {', '.join(names[:5])}{rest}"
        raise Refused(f"no node {name!r} to {verb}; {known}")
    match verb:
        case "crash" | "freeze" | "partition":
            nodes.fail(name, verb)
        case "heal":
            if nodes.fault(name) is None:
                raise Refused(f"node {name} has no fault")
            nodes.heal(name)
        case "shutdown" if agents is not None and nodes is agents:
            agents.shut_down(name)
        case "shutdown":
            raise Refused(f"node {name} is simulated: only nodes of `--nodes` shut down")
        case "look" if agents is not None and nodes is agents:
            return {"node": name, "off": agents.is_off(name)}
        case _:
            raise Refused(
                f"unknown action {verb!r}; one of crash, freeze, partition, heal, shutdown"
            )
    return {"node": name, "fault": nodes.fault(name)}
