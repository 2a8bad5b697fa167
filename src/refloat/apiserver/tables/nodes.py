# SPDX-License-Identifier: Apache-2.0
"""Nodes as rows."""

from datetime import datetime
from typing import Any

from refloat.api import meta, printing
from refloat.api.meta import Object
from refloat.apiserver.tables.columns import AGE, NAME, Cells, Printer, age, column, name

_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE_LABEL = "kubernetes.io/role"

_COLUMNS = (
    NAME,
    column("Status", "Whether the node is ready and schedulable."),
    column("Roles", "The roles in the node's labels."),
    AGE,
    column("Version", "The version of the node's agent."),
    column("Internal-IP", "Its first address inside the cluster.", wide=True),
    column("External-IP", "Its first address outside the cluster.", wide=True),
    column("OS-Image", "The operating system.", wide=True),
    column("Kernel-Version", "The kernel and the architecture.", wide=True),
    column("Container-Runtime", "The container runtime.", wide=True),
)


def _cells(node: Object, now: datetime) -> Cells:
    status = node.get("status") or {}
    info = status.get("nodeInfo") or {}
    kernel = info.get("kernelVersion") or printing.UNKNOWN
    if architecture := info.get("architecture"):
        kernel += f" ({architecture})"
    roles = {
        value if key == _ROLE_LABEL else key.removeprefix(_ROLE_PREFIX)
        for key, value in meta.labels(node).items()
        if key == _ROLE_LABEL or key.startswith(_ROLE_PREFIX)
    }
    return [
        name(node),
        _state(node, status),
        ",".join(sorted(filter(None, roles))) or printing.NONE,
        age(node, now),
        info.get("kubeletVersion", ""),
        _address(status, "InternalIP"),
        _address(status, "ExternalIP"),
        info.get("osImage") or printing.UNKNOWN,
        kernel,
        info.get("containerRuntimeVersion") or printing.UNKNOWN,
    ]


def _state(node: Object, status: dict[str, Any]) -> str:
    state = "Unknown"
    # The last of several conditions with the same type counts.
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Ready":
            state = "Ready" if condition.get("status") == "True" else "NotReady"
    if (node.get("spec") or {}).get("unschedulable"):
        state += ",SchedulingDisabled"
    return state


def _address(status: dict[str, Any], address_type: str) -> str:
    for each in status.get("addresses") or ():
        if each.get("type") == address_type:
            text: str = each.get("address", "")
            return text
    return printing.NONE


NODES = Printer(_COLUMNS, _cells)
