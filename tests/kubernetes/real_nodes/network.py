# SPDX-License-Identifier: Apache-2.0
"""The network of the nodes: a bridge in this network namespace, one link per node.

The suite runs in a network namespace of its own (`unshare --net`), so nothing
of this outlives the suite.
"""

import subprocess

BRIDGE = "nodes"
API_SERVER = "10.77.0.1"


def make() -> None:
    """Make the bridge; the API server has its address."""
    _ip("link", "set", "lo", "up")
    _ip("link", "add", BRIDGE, "type", "bridge")
    _ip("address", "add", f"{API_SERVER}/24", "dev", BRIDGE)
    _ip("link", "set", BRIDGE, "up")


def address(number: int) -> str:
    """The address of a node."""
    return f"10.77.0.{10 + number}"


def pods(number: int) -> str:
    """The addresses of the pods of a node."""
    return f"10.78.{number}.0/24"


def link(number: int) -> str:
    """The bridge's end of the link to a node; a node without this link is cut off."""
    return f"node{number}"


def join(number: int, pid: int) -> None:
    """Give the network namespace of a process a link to the bridge, named eth0."""
    peer = ("peer", "name", "eth0", "netns", str(pid))
    _ip("link", "add", link(number), "type", "veth", *peer)
    _ip("link", "set", link(number), "master", BRIDGE, "up")
    _ip("route", "replace", pods(number), "via", address(number))


def cut(number: int) -> None:
    _ip("link", "set", link(number), "down")


def mend(number: int) -> None:
    _ip("link", "set", link(number), "up")
    # The kernel removes routes over a link that is down only if the bridge is down too.
    _ip("route", "replace", pods(number), "via", address(number))


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
