# SPDX-License-Identifier: Apache-2.0
"""What a delete does to an object: the arithmetic of grace, and finalizers.

Pure decisions; the registry carries them out.
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
    """What a delete asks for."""

    grace_seconds: int | None = None
    propagation: Propagation | None = None
    uid: str | None = None
    resource_version: str | None = None
    reason: str = ""
    dry_run: bool = False
    orphans: bool | None = None
    """What the deprecated `orphanDependents` said; `propagation` has its meaning."""


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
    """Shorten the grace of a terminating object (behaviour C8.4); was it changed?"""
    metadata = obj["metadata"]
    held = metadata.get("deletionGracePeriodSeconds") or 0
    held = 1 if held < 0 else held
    if requested is None or held == 0:
        return False
    period = 1 if requested < 0 else requested
    if period >= held:
        return False
    stamp = times.parse(metadata["deletionTimestamp"])
    stamp += times.span(period) - times.span(held)
    now = now.replace(microsecond=0)
    if stamp < now:
        stamp = now
        period = 1 if period else 0
    metadata["deletionTimestamp"] = times.format_time(stamp)
    metadata["deletionGracePeriodSeconds"] = period
    return True


def finalizers(obj: Object, wanted: Propagation | None, *, orphans_by_default: bool) -> list[str]:
    """The finalizers of an object once its delete has been asked for."""
    present = obj["metadata"].get("finalizers") or []
    propagation = wanted
    if propagation is None:
        propagation = _implied(present, orphans_by_default=orphans_by_default)
    kept = [each for each in present if each not in (FOREGROUND, ORPHAN)]
    if propagation == "Foreground":
        return [*kept, FOREGROUND]
    if propagation == "Orphan":
        return [*kept, ORPHAN]
    return kept


def _implied(present: list[str], *, orphans_by_default: bool) -> Propagation:
    """An earlier delete's wish stands; else it is the kind's habit."""
    if ORPHAN in present:
        return "Orphan"
    if FOREGROUND in present:
        return "Foreground"
    return "Orphan" if orphans_by_default else "Background"


def is_over(obj: Object) -> bool:
    """May a terminating object go now (behaviour C8.3, C8.6)?"""
    metadata = obj["metadata"]
    return not metadata.get("deletionGracePeriodSeconds") and not metadata.get("finalizers")
