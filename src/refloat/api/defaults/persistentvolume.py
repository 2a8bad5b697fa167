# SPDX-License-Identifier: Apache-2.0
"""The default values of a PersistentVolume's fields."""

from refloat.api.defaults import pod
from refloat.api.meta import Object


def apply(volume: Object) -> None:
    spec = volume.setdefault("spec", {})
    pod.apply_source(spec)
    pod.round_amounts(spec.get("capacity"))
    pod.fill(spec, {"persistentVolumeReclaimPolicy": "Retain"})
    spec.setdefault("volumeMode", "Filesystem")
    pod.fill(volume.setdefault("status", {}), {"phase": "Pending"})


def prepare_create(volume: Object, now: str) -> None:
    """A new volume is pending since now."""
    volume["status"] = {"phase": "Pending", "lastPhaseTransitionTime": now}
