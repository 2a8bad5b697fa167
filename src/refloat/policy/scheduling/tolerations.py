# SPDX-License-Identifier: Apache-2.0
"""Which taints a pod tolerates.

Scheduler, taint eviction and force eviction use the same matching for different effects. The
operators `Lt` and `Gt` match nothing, as in Kubernetes while their gate is off (behaviour 0.2).
"""

from collections.abc import Collection, Iterable

from refloat.api.core import Taint, Toleration

NO_SCHEDULE = "NoSchedule"
PREFER_NO_SCHEDULE = "PreferNoSchedule"
NO_EXECUTE = "NoExecute"
FORCE_EVICTION = "ForceEviction"
"""Refloat's own (KEP-36): pods are failed and deleted at once, by force eviction."""

# Effects that keep new pods away.
REPELLING = (NO_SCHEDULE, NO_EXECUTE, FORCE_EVICTION)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether the two match: an empty effect or key is any, an empty operator `Equal`."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def is_tolerated(taint: Taint, tolerations: Iterable[Toleration] | None) -> bool:
    return any(tolerates(each, taint) for each in tolerations or ())


def untolerated(
    taints: Iterable[Taint] | None,
    tolerations: Collection[Toleration] | None,
    effects: Collection[str],
) -> Taint | None:
    """The first taint of one of these effects that no toleration matches."""
    for taint in taints or ():
        if taint.effect in effects and not is_tolerated(taint, tolerations):
            return taint
    return None
