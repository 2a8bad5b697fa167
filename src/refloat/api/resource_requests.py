# SPDX-License-Identifier: Apache-2.0
"""What the containers of a pod ask for, together.

Containers run at once, init containers one after another before them, and
sidecars beside everything that starts after them: a pod needs the largest
amount of any moment.
"""

from typing import Literal, TypeAlias

from refloat.api import quantity
from refloat.api.meta import Object

Amounts: TypeAlias = dict[str, str]
"""Quantities by the name of their resource."""

Part: TypeAlias = Literal["requests", "limits"]


def aggregate(spec: Object, part: Part) -> Amounts:
    """The requests or the limits of all containers of a pod."""
    total: Amounts = {}
    for container in spec.get("containers") or ():
        _add(total, _of(container, part))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        own = _of(container, part)
        if container.get("restartPolicy") == "Always":
            _add(total, own)
            _add(sidecars, own)
            moment = sidecars
        else:
            moment = dict(own)
            _add(moment, sidecars)
        _raise_to(peak, moment)
    _raise_to(total, peak)
    return total


def _of(container: Object, part: Part) -> Amounts:
    return (container.get("resources") or {}).get(part) or {}


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = quantity.add(total[name], amount) if name in total else amount


def _raise_to(total: Amounts, least: Amounts) -> None:
    for name, amount in least.items():
        if name not in total or quantity.compare(amount, total[name]) > 0:
            total[name] = amount
