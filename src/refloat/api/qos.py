# SPDX-License-Identifier: Apache-2.0
"""How firmly a pod's resources are promised: its quality-of-service class."""

from collections.abc import Iterable
from fractions import Fraction

from refloat.api import quantity
from refloat.api.meta import Object
from refloat.api.resource_requests import Amounts

GUARANTEED = "Guaranteed"
BURSTABLE = "Burstable"
BEST_EFFORT = "BestEffort"

_COUNTED = ("cpu", "memory")


def qos_class(pod: Object) -> str:
    """The class of a pod, from the pod's resources or else from the containers'."""
    spec = pod["spec"]
    of_pod = spec.get("resources")
    if of_pod is not None:
        owners = [of_pod]
        limited = not of_pod.get("limits") or _is_limited(of_pod)
    else:
        containers = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
        owners = [each.get("resources") or {} for each in containers]
        limited = all(map(_is_limited, owners))
    requests = _sums(each.get("requests") for each in owners)
    limits = _sums(each.get("limits") for each in owners)
    if not requests and not limits:
        return BEST_EFFORT
    return GUARANTEED if limited and requests == limits else BURSTABLE


def _is_limited(resources: Object) -> bool:
    limits = resources.get("limits") or {}
    return all(name in limits and quantity.value(limits[name]) > 0 for name in _COUNTED)


def _sums(lists: Iterable[Amounts | None]) -> dict[str, int | Fraction]:
    total: dict[str, int | Fraction] = {}
    for amounts in lists:
        for name in _COUNTED:
            if amounts and name in amounts and (amount := quantity.value(amounts[name])) > 0:
                total[name] = total.get(name, 0) + amount
    return total
