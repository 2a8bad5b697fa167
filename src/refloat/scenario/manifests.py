# SPDX-License-Identifier: Apache-2.0
"""The objects that scenarios create, valid and as small as they can be.

Keyword arguments go into the metadata unless they are one of the function's own.
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
    """`simulate` has the script of the containers on a simulated node."""
    pod_spec: Object = {"containers": [CONTAINER], **(spec or {})}
    if node:
        pod_spec["nodeName"] = node
    if grace is not None:
        pod_spec["terminationGracePeriodSeconds"] = grace
    metadata = {**metadata, **_simulate(simulate, metadata.get("annotations"))}
    parts = {} if status is None else {"status": status}
    return manifest("v1", "Pod", name, metadata, spec=pod_spec, **parts)


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
    spec = {"template": template, **(spec or {})}
    return manifest("batch/v1", "Job", name, metadata, spec=spec)


def _simulate(script: Any, annotations: Object | None) -> Object:
    if script is None:
        return {}
    text = script if isinstance(script, str) else json.dumps(script)
    return {"annotations": {simulated.ANNOTATION: text, **(annotations or {})}}


def manifest(api_version: str, kind: str, name: str, metadata: Object, **parts: Any) -> Object:
    meta = {"name": name, **metadata} if name else metadata
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, **parts}
