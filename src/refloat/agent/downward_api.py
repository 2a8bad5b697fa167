# SPDX-License-Identifier: Apache-2.0
"""The downward API: fields of a pod, and resources of its containers, as text.

Pure, on a raw pod. A container without a limit gets the limit of the pod, or the
allocatable amount of the node. `container_inputs` puts the text into environments and
files.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from refloat.api import fields, quantity
from refloat.api.meta import Object
from refloat.base.errors import RefloatError

_SUBSCRIPTED = re.compile(r"(metadata\.(?:labels|annotations))\['(.*)'\]", re.DOTALL)

# The default of these limits is the node's allocatable amount.
_DEFAULTED = ("cpu", "memory", "ephemeral-storage")
_OF_A_POD = ("cpu", "memory")


class FieldMissing(RefloatError):
    """The downward API does not have a field."""


@dataclass(frozen=True, slots=True)
class NodeValues:
    """The facts of a node for its pods."""

    addresses: tuple[str, ...] = ("127.0.0.1",)
    """The node's addresses, which are the pods' addresses too."""

    allocatable: Mapping[str, str] = field(default_factory=dict)
    """Replaces limits that are not set."""


def field_value(pod: Object, path: str, place: NodeValues) -> str:
    """The text of a `fieldRef`; raises `FieldMissing`."""
    metadata, spec, addresses = pod["metadata"], pod["spec"], place.addresses
    if subscripted := _SUBSCRIPTED.fullmatch(path):
        values = metadata.get(subscripted[1].removeprefix("metadata.")) or {}
        return str(values.get(subscripted[2], ""))
    match path:
        case "metadata.name" | "metadata.namespace" | "metadata.uid":
            return str(metadata.get(path.removeprefix("metadata."), ""))
        case "metadata.labels" | "metadata.annotations":
            values = metadata.get(path.removeprefix("metadata.")) or {}
            return "\n".join(f"{key}={fields.quote(values[key])}" for key in sorted(values))
        case "spec.nodeName" | "spec.serviceAccountName":
            return str(spec.get(path.removeprefix("spec."), ""))
        case "status.hostIP" | "status.podIP":
            return addresses[0]
        case "status.hostIPs" | "status.podIPs":
            return ",".join(addresses)
    raise FieldMissing(f"unsupported fieldPath: {path}")


def resource_value(pod: Object, container: Object, selector: Object, place: NodeValues) -> str:
    """The text of a `resourceFieldRef`, rounded up; raises `FieldMissing`."""
    if name := selector.get("containerName"):
        container = _named(pod, name)
    which, _, resource = selector["resource"].partition(".")
    is_known = resource in _DEFAULTED or resource.startswith("hugepages-")
    if which not in ("limits", "requests") or not is_known:
        raise FieldMissing(f"unsupported container resource : {selector['resource']}")
    amount = ((container.get("resources") or {}).get(which) or {}).get(resource, "0")
    if which == "limits" and resource in _DEFAULTED and not quantity.value(amount):
        # The limit of the pod, else the allocatable amount of the node.
        limits: Mapping[str, str] = (pod["spec"].get("resources") or {}).get("limits") or {}
        if resource not in _OF_A_POD or not quantity.value(limits.get(resource, "0")):
            limits = place.allocatable
        amount = limits.get(resource, "0")
    divisor = selector.get("divisor") or "0"
    divisor = divisor if quantity.value(divisor) else "1"
    measure = quantity.milli_value if resource == "cpu" else quantity.int_value
    return str(math.ceil(measure(amount) / measure(divisor)))


def _named(pod: Object, name: str) -> Object:
    spec = pod["spec"]
    for each in (*spec["containers"], *(spec.get("initContainers") or ())):
        if each["name"] == name:
            container: Object = each
            return container
    raise FieldMissing(f"container {name} not found")
