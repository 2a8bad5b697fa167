# SPDX-License-Identifier: Apache-2.0
"""The effect of a delete on an object: grace periods and finalizers.

Pure decisions; the registry applies them.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from refloat.api import times
from refloat.api.meta import Object

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"

Propagation = Literal["Foreground", "Background", "Orphan"]


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a delete."""

    grace_seconds: int | None = None
    propagation: Propagation | None = None
    uid: str | None = None
    resource_version: str | None = None
    reason: str = ""
    dry_run: bool = False
    orphans: bool | None = None
    """The deprecated `orphanDependents`; `propagation` has the policy that it stands for."""


def pod_grace(pod: Object, requested: int | None) -> int:
    """The grace period of a pod's first delete (behaviour C8.1)."""
    spec = pod["spec"]
    period = requested
    if period is None:
        period = spec.get("terminationGracePeriodSeconds", 0)
    assert period is not None
    if not spec.get("nodeName") or pod["status"].get("phase") in ("Succeeded", "Failed"):
        return 0
    return 1 if period < 0 else period


def begin(obj: Object, grace_seconds: int, now: datetime) -> None:
    """Mark an object as being deleted (behaviour C8.2)."""
    metadata = obj["metadata"]
    metadata["deletionTimestamp"] = times.format_time(now + times.span(grace_seconds))
    metadata["deletionGracePeriodSeconds"] = grace_seconds
    if metadata.get("generation", 0) > 0:
        metadata["generation"] += 1


def shorten(obj: Object, requested: int | None, now: datetime) -> bool:
    """Shorten the grace of a terminating object (behaviour C8.4); whether that changed it."""
    metadata = obj["metadata"]
    current = metadata.get("deletionGracePeriodSeconds") or 0
    current = 1 if current < 0 else current
    if requested is None or current == 0:
        return False
    period = 1 if requested < 0 else requested
    if period >= current:
        return False
    stamp = times.parse(metadata["deletionTimestamp"])
    stamp += times.span(period) - times.span(current)
    now = now.replace(microsecond=0)
    if stamp < now:
        stamp = now
        period = 1 if period else 0
    metadata["deletionTimestamp"] = times.format_time(stamp)
    metadata["deletionGracePeriodSeconds"] = period
    return True


def finalizers(
    obj: Object, propagation: Propagation | None, *, orphans_by_default: bool
) -> list[str]:
    """The finalizers of an object after a delete request.

    Without a policy in the request, that of an earlier delete stays, or the kind's default.
    """
    present = obj["metadata"].get("finalizers") or []
    others = [each for each in present if each not in (FOREGROUND, ORPHAN)]
    if propagation is None and ORPHAN not in present:
        if FOREGROUND in present:
            propagation = "Foreground"
        elif not orphans_by_default:
            propagation = "Background"
    if propagation == "Foreground":
        return [*others, FOREGROUND]
    return others if propagation == "Background" else [*others, ORPHAN]


def is_over(obj: Object) -> bool:
    """Whether a terminating object may go now (behaviour C8.3, C8.6)."""
    metadata = obj["metadata"]
    return not metadata.get("deletionGracePeriodSeconds") and not metadata.get("finalizers")
