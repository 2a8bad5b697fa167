# SPDX-License-Identifier: Apache-2.0
"""Volumes, claims and attachments as rows."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from refloat.api import meta, printing
from refloat.api.meta import Object
from refloat.apiserver.tables.columns import AGE, NAME, Cells, Printer, age, column, name

# Older than the field for the class, and still with priority.
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"

_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}

_MODE_COLUMN = column("VolumeMode", "Filesystem or Block.", wide=True)
_ACCESS_COLUMN = column("Access Modes", "The access modes.")
_CLASS_COLUMN = column("StorageClass", "The storage class.")
_ATTRIBUTES_COLUMN = column("VolumeAttributesClass", "The class of its attributes.")


def _volume(volume: Object, now: datetime) -> Cells:
    spec, status = volume.get("spec") or {}, volume.get("status") or {}
    claim = spec.get("claimRef")
    return [
        name(volume),
        (spec.get("capacity") or {}).get("storage", "0"),
        _access(spec.get("accessModes") or ()),
        spec.get("persistentVolumeReclaimPolicy", ""),
        _phase(volume, status),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim is not None else "",
        _class(volume, spec),
        spec.get("volumeAttributesClassName", printing.UNSET),
        status.get("reason", ""),
        age(volume, now),
        spec.get("volumeMode", printing.UNSET),
    ]


def _claim(claim: Object, now: datetime) -> Cells:
    spec, status = claim.get("spec") or {}, claim.get("status") or {}
    volume = spec.get("volumeName", "")
    return [
        name(claim),
        _phase(claim, status),
        volume,
        (status.get("capacity") or {}).get("storage", "0") if volume else "",
        _access(status.get("accessModes") or ()) if volume else "",
        _class(claim, spec),
        spec.get("volumeAttributesClassName", printing.UNSET),
        age(claim, now),
        spec.get("volumeMode", printing.UNSET),
    ]


def _attachment(attachment: Object, now: datetime) -> Cells:
    spec, status = attachment.get("spec") or {}, attachment.get("status") or {}
    return [
        name(attachment),
        spec.get("attacher", ""),
        (spec.get("source") or {}).get("persistentVolumeName", ""),
        spec.get("nodeName", ""),
        status.get("attached", False),
        age(attachment, now),
    ]


def _phase(obj: Object, status: dict[str, Any]) -> str:
    return "Terminating" if meta.is_terminating(obj) else status.get("phase", "")


def _access(modes: Sequence[str]) -> str:
    return ",".join(short for mode, short in _MODES.items() if mode in modes)


def _class(obj: Object, spec: dict[str, Any]) -> str:
    class_name: str = spec.get("storageClassName", "")
    return meta.annotations(obj).get(_CLASS_ANNOTATION, class_name)


VOLUMES = Printer(
    (
        NAME,
        column("Capacity", "The size of the volume."),
        _ACCESS_COLUMN,
        column("Reclaim Policy", "What happens to the volume after its claim."),
        column("Status", "Available, Bound, Released or Failed."),
        column("Claim", "The claim of the volume."),
        _CLASS_COLUMN,
        _ATTRIBUTES_COLUMN,
        column("Reason", "The reason of a failure in one word."),
        AGE,
        _MODE_COLUMN,
    ),
    _volume,
)

CLAIMS = Printer(
    (
        NAME,
        column("Status", "Whether the claim has its volume."),
        column("Volume", "The volume of the claim."),
        column("Capacity", "The size of that volume."),
        _ACCESS_COLUMN,
        _CLASS_COLUMN,
        _ATTRIBUTES_COLUMN,
        AGE,
        _MODE_COLUMN,
    ),
    _claim,
)

ATTACHMENTS = Printer(
    (
        NAME,
        column("Attacher", "The driver that attaches the volume.", format_="name"),
        column("PV", "The volume."),
        column("Node", "The node of the attachment."),
        column("Attached", "Whether the volume is attached.", type_="boolean"),
        AGE,
    ),
    _attachment,
)
