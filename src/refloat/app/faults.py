# SPDX-License-Identifier: Apache-2.0
"""What is done to a node when somebody asks for it through the control socket.

Simulated nodes are all of one fleet; nodes that run processes are processes
themselves (`supervision`). Both fail, and return, by the same words.
"""

import signal
from collections.abc import Iterable
from typing import Literal, Protocol, TypeAlias

from refloat.app.control import Object, Refused

CUT, MEND = signal.SIGUSR1, signal.SIGUSR2
"""What cuts an agent that is a process off from its API server, and lets it back."""

Fault: TypeAlias = Literal["crash", "freeze", "partition"]


class Nodes(Protocol):
    """Nodes that can be made to fail."""

    def names(self) -> list[str]: ...

    def fault(self, name: str) -> str | None: ...

    def fail(self, name: str, fault: Fault) -> None: ...

    def heal(self, name: str) -> None: ...


class Processes(Nodes, Protocol):
    def shut_down(self, name: str) -> None: ...

    def is_off(self, name: str) -> bool: ...


def obey(fleet: Nodes | None, request: Object, agents: Processes | None = None) -> Object:
    """Make a node fail or return; raises `Refused`."""
    name, verb = request.get("node"), request.get("do")
    nodes = next((each for each in (agents, fleet) if each and name in each.names()), None)
    if nodes is None or name is None:
        every = [each for some in (agents, fleet) if some for each in some.names()]
        raise Refused(f"there is no node {name!r} that can be told to {verb}; {_those(every)}")
    match verb:
        case "crash" | "freeze" | "partition":
            nodes.fail(name, verb)
        case "heal":
            if nodes.fault(name) is None:
                raise Refused(f"nothing is the matter with node {name}")
            nodes.heal(name)
        case "shutdown" if agents is not None and nodes is agents:
            agents.shut_down(name)
        case "shutdown":
            raise Refused(f"node {name} is simulated: only nodes of `--nodes` shut down")
        case "look" if agents is not None and nodes is agents:
            return {"node": name, "off": agents.is_off(name)}
        case _:
            raise Refused(f"nobody knows how to {verb!r} a node")
    return {"node": name, "fault": nodes.fault(name)}


def _those(names: Iterable[str]) -> str:
    listed = list(names)
    if not listed:
        return "this cluster has none; `refloat up --simulated-nodes 3` has three"
    shown = ", ".join(listed[:5])
    return f"there are {shown}{' and others' if len(listed) > 5 else ''}"
