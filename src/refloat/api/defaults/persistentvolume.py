# SPDX-License-Identifier: Apache-2.0
"""What a PersistentVolume's fields are when nobody says."""

from refloat.api.defaults import pod
from refloat.api.meta import Object

# Filled in for the sources that the field is given for.
_HOST_PATH_TYPE = ""
_RBD = {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"}
_SCALE_IO = {"fsType": "xfs", "storageMode": "ThinProvisioned"}
_AZURE_DISK = {"cachingMode": "ReadWrite", "kind": "Shared", "fsType": "ext4", "readOnly": False}


def apply(volume: Object) -> None:
    apply_spec_sources(volume.setdefault("spec", {}))
    spec = volume["spec"]
    pod.round_amounts(spec.get("capacity"))
    if not spec.get("persistentVolumeReclaimPolicy"):
        spec["persistentVolumeReclaimPolicy"] = "Retain"
    spec.setdefault("volumeMode", "Filesystem")
    status = volume.setdefault("status", {})
    if not status.get("phase"):
        status["phase"] = "Pending"


def apply_spec_sources(spec: Object) -> None:
    """The defaults of the volume's source, also inside a VolumeAttachment."""
    if (host := spec.get("hostPath")) is not None:
        host.setdefault("type", _HOST_PATH_TYPE)
    if (iscsi := spec.get("iscsi")) is not None and not iscsi.get("iscsiInterface"):
        iscsi["iscsiInterface"] = "default"
    _fill(spec.get("rbd"), _RBD)
    _fill(spec.get("scaleIO"), _SCALE_IO)
    if (disk := spec.get("azureDisk")) is not None:
        for name, value in _AZURE_DISK.items():
            disk.setdefault(name, value)


def _fill(source: Object | None, values: dict[str, str]) -> None:
    if source is None:
        return
    for name, value in values.items():
        if not source.get(name):
            source[name] = value


def prepare_create(volume: Object, now: str) -> None:
    """A new volume is pending since now."""
    volume["status"] = {"phase": "Pending", "lastPhaseTransitionTime": now}
