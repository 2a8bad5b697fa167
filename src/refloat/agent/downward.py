# SPDX-License-Identifier: Apache-2.0
"""What a pod may be told about itself: its fields, and its containers' resources.

Pure, on a pod as the API has it. Where a container has no limit, the pod's
stands for it, else what the node has to give. `resources` makes environments
and files of the values.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from refloat.api import fields, quantity
from refloat.api.meta import Object
from refloat.base.errors import RefloatError

_SUBSCRIPTED = re.compile(r"(metadata\.(?:labels|annotations))\['(.*)'\]", re.DOTALL)

# Whose limit defaults to what the node has.
_DEFAULTED = ("cpu", "memory", "ephemeral-storage")
_OF_A_POD = ("cpu", "memory")


class FieldMissing(RefloatError):
    """A field that no pod can be told of."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a pod is told of the node that it is on."""

    addresses: tuple[str, ...] = ("127.0.0.1",)
    """The node's; processes have no others, so they are the pod's too."""

    allocatable: Mapping[str, str] = field(default_factory=dict)
    """What stands for a limit that nobody set."""


def field_value(pod: Object, path: str, place: Place) -> str:
    """The text of a `fieldRef`; raises `FieldMissing`."""
    if (found := _of_metadata(pod["metadata"], path)) is not None:
        return found
    spec, addresses = pod["spec"], place.addresses
    match path:
        case "spec.nodeName" | "spec.serviceAccountName":
            return str(spec.get(path.removeprefix("spec."), ""))
        case "status.hostIP" | "status.podIP":
            return addresses[0]
        case "status.hostIPs" | "status.podIPs":
            return ",".join(addresses)
    raise FieldMissing(f"unsupported fieldPath: {path}")


def _of_metadata(metadata: Object, path: str) -> str | None:
    if subscripted := _SUBSCRIPTED.fullmatch(path):
        held = metadata.get(subscripted[1].removeprefix("metadata.")) or {}
        return str(held.get(subscripted[2], ""))
    if path in ("metadata.name", "metadata.namespace", "metadata.uid"):
        return str(metadata.get(path.removeprefix("metadata."), ""))
    if path in ("metadata.labels", "metadata.annotations"):
        held = metadata.get(path.removeprefix("metadata.")) or {}
        return "\n".join(f"{key}={fields.quote(held[key])}" for key in sorted(held))
    return None


def resource_value(pod: Object, container: Object, selector: Object, place: Place) -> str:
    """The text of a `resourceFieldRef`, rounded up; raises `FieldMissing`."""
    if name := selector.get("containerName"):
        container = _named(pod, name)
    which, _, resource = selector["resource"].partition(".")
    if which not in ("limits", "requests") or not _is_told(resource):
        raise FieldMissing(f"unsupported container resource : {selector['resource']}")
    held = ((container.get("resources") or {}).get(which) or {}).get(resource, "0")
    if which == "limits" and resource in _DEFAULTED and not quantity.value(held):
        held = _limit_instead(pod, resource, place)
    divisor = selector.get("divisor") or "0"
    divisor = divisor if quantity.value(divisor) else "1"
    measure = quantity.milli_value if resource == "cpu" else quantity.int_value
    return str(math.ceil(measure(held) / measure(divisor)))


def _is_told(resource: str) -> bool:
    return resource in _DEFAULTED or resource.startswith("hugepages-")


def _named(pod: Object, name: str) -> Object:
    spec = pod["spec"]
    for each in (*spec["containers"], *(spec.get("initContainers") or ())):
        if each["name"] == name:
            found: Object = each
            return found
    raise FieldMissing(f"container {name} not found")


def _limit_instead(pod: Object, resource: str, place: Place) -> str:
    if resource in _OF_A_POD:
        limits: Object = (pod["spec"].get("resources") or {}).get("limits") or {}
        if quantity.value(limits.get(resource, "0")):
            return str(limits[resource])
    return place.allocatable.get(resource, "0")
