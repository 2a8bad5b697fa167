# SPDX-License-Identifier: Apache-2.0
"""Objects for tests, valid and as small as they can be.

Keyword arguments go into the metadata unless they are one of the builder's own.
"""

from typing import Any

from refloat.api.meta import Object
from refloat.scenario import manifests
from refloat.scenario.manifests import manifest

CONTAINER = manifests.CONTAINER
job = manifests.job
pod = manifests.pod


def node(
    name: str = "n",
    *,
    taints: list[Object] | None = None,
    spec: Object | None = None,
    status: Object | None = None,
    **metadata: Any,
) -> Object:
    node_spec: Object = {**({"taints": taints} if taints else {}), **(spec or {})}
    return manifest("v1", "Node", name, metadata, spec=node_spec, **_status(status))


def config_map(name: str = "c", *, data: dict[str, str] | None = None, **metadata: Any) -> Object:
    return manifest("v1", "ConfigMap", name, metadata, **({"data": data} if data else {}))


def namespace(name: str = "ns", **metadata: Any) -> Object:
    return manifest("v1", "Namespace", name, metadata)


def lease(name: str = "l", **metadata: Any) -> Object:
    return manifest("coordination.k8s.io/v1", "Lease", name, metadata, spec={})


def folder(handle: str) -> Object:
    """The source of a volume that all nodes of a machine could reach."""
    return {"csi": {"driver": "volumes.refloat.dev", "volumeHandle": handle}}


def volume(
    name: str = "v",
    *,
    modes: list[str] | None = None,
    source: Object | None = None,
    **metadata: Any,
) -> Object:
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": modes or ["ReadWriteOnce"],
        **(source or folder("data")),
    }
    return manifest("v1", "PersistentVolume", name, metadata, spec=spec)


def claim(
    name: str = "c", *, volume: str = "", modes: list[str] | None = None, **metadata: Any
) -> Object:
    spec: Object = {
        "accessModes": modes or ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "",
    }
    if volume:
        spec["volumeName"] = volume
    return manifest("v1", "PersistentVolumeClaim", name, metadata, spec=spec)


def volume_attachment(
    name: str = "va", *, node: str = "n", source: Object | None = None, **metadata: Any
) -> Object:
    spec = {
        "attacher": "attacher.example.com",
        "nodeName": node,
        "source": source or {"persistentVolumeName": "pv"},
    }
    return manifest("storage.k8s.io/v1", "VolumeAttachment", name, metadata, spec=spec)


def event(name: str = "e", **metadata: Any) -> Object:
    about = {"kind": "Pod", "namespace": "default", "name": "p"}
    metadata.setdefault("namespace", "default")
    return manifest("v1", "Event", name, metadata, involvedObject=about)


def priority_class(name: str = "pc", *, value: int = 1, **more: Any) -> Object:
    return manifest("scheduling.k8s.io/v1", "PriorityClass", name, {}, value=value, **more)


def budget(
    name: str = "b", *, app: str = "x", spec: Object | None = None, **metadata: Any
) -> Object:
    selected = {"selector": {"matchLabels": {"app": app}}, "maxUnavailable": 1, **(spec or {})}
    return manifest("policy/v1", "PodDisruptionBudget", name, metadata, spec=selected)


def _status(status: Object | None) -> Object:
    return {} if status is None else {"status": status}
