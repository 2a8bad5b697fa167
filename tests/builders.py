# SPDX-License-Identifier: Apache-2.0
"""Objects for tests, valid and as small as they can be.

Keyword arguments go into the metadata unless they are one of the builder's own.
"""

import json
from typing import Any

from refloat.agent import simulated
from refloat.api.meta import Object

CONTAINER: Object = {"name": "main", "image": "busybox"}


def pod(
    name: str = "p",
    *,
    node: str = "",
    grace: int | None = None,
    simulate: Any = None,
    spec: Object | None = None,
    status: Object | None = None,
    **metadata: Any,
) -> Object:
    """`simulate` says what its containers do on a simulated node."""
    pod_spec: Object = {"containers": [CONTAINER], **(spec or {})}
    if node:
        pod_spec["nodeName"] = node
    if grace is not None:
        pod_spec["terminationGracePeriodSeconds"] = grace
    metadata = {**metadata, **_simulate(simulate, metadata.get("annotations"))}
    return _object("v1", "Pod", name, metadata, spec=pod_spec, **_status(status))


def job(
    name: str = "j",
    *,
    simulate: Any = None,
    spec: Object | None = None,
    pod_spec: Object | None = None,
    pod_metadata: Object | None = None,
    **metadata: Any,
) -> Object:
    template: Object = {"spec": {"restartPolicy": "Never", **pod()["spec"], **(pod_spec or {})}}
    pod_metadata = pod_metadata or {}
    pod_metadata = {**pod_metadata, **_simulate(simulate, pod_metadata.get("annotations"))}
    if pod_metadata:
        template["metadata"] = pod_metadata
    return _object("batch/v1", "Job", name, metadata, spec={"template": template, **(spec or {})})


def node(
    name: str = "n",
    *,
    taints: list[Object] | None = None,
    spec: Object | None = None,
    status: Object | None = None,
    **metadata: Any,
) -> Object:
    node_spec: Object = {**({"taints": taints} if taints else {}), **(spec or {})}
    return _object("v1", "Node", name, metadata, spec=node_spec, **_status(status))


def config_map(name: str = "c", *, data: dict[str, str] | None = None, **metadata: Any) -> Object:
    return _object("v1", "ConfigMap", name, metadata, **({"data": data} if data else {}))


def namespace(name: str = "ns", **metadata: Any) -> Object:
    return _object("v1", "Namespace", name, metadata)


def lease(name: str = "l", **metadata: Any) -> Object:
    return _object("coordination.k8s.io/v1", "Lease", name, metadata, spec={})


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
    return _object("v1", "PersistentVolume", name, metadata, spec=spec)


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
    return _object("v1", "PersistentVolumeClaim", name, metadata, spec=spec)


def volume_attachment(
    name: str = "va", *, node: str = "n", source: Object | None = None, **metadata: Any
) -> Object:
    spec = {
        "attacher": "attacher.example.com",
        "nodeName": node,
        "source": source or {"persistentVolumeName": "pv"},
    }
    return _object("storage.k8s.io/v1", "VolumeAttachment", name, metadata, spec=spec)


def event(name: str = "e", **metadata: Any) -> Object:
    about = {"kind": "Pod", "namespace": "default", "name": "p"}
    metadata.setdefault("namespace", "default")
    return _object("v1", "Event", name, metadata, involvedObject=about)


def priority_class(name: str = "pc", *, value: int = 1, **more: Any) -> Object:
    return _object("scheduling.k8s.io/v1", "PriorityClass", name, {}, value=value, **more)


def budget(
    name: str = "b", *, app: str = "x", spec: Object | None = None, **metadata: Any
) -> Object:
    selected = {"selector": {"matchLabels": {"app": app}}, "maxUnavailable": 1, **(spec or {})}
    return _object("policy/v1", "PodDisruptionBudget", name, metadata, spec=selected)


def _simulate(script: Any, annotations: Object | None) -> Object:
    if script is None:
        return {}
    text = script if isinstance(script, str) else json.dumps(script)
    return {"annotations": {simulated.ANNOTATION: text, **(annotations or {})}}


def _status(status: Object | None) -> Object:
    return {} if status is None else {"status": status}


def _object(api_version: str, kind: str, name: str, metadata: Object, **parts: Any) -> Object:
    meta = {"name": name, **metadata} if name else metadata
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, **parts}
