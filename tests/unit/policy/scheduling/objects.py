# SPDX-License-Identifier: Apache-2.0
"""Nodes and pods for the tests of the scheduler's decisions."""

from typing import Any

import msgspec

from refloat.api.core import Node, Pod, Taint
from refloat.api.meta import Object
from refloat.base.rand import Rand
from refloat.controllers.scheduler.scheduler_cache import SchedulerCache
from refloat.policy.scheduling.demand import Demand, Demands
from refloat.runtime.node_info import NodeInfo


def pod(name: str = "p", *, cpu: str = "", priority: int = 0, **spec: Any) -> Pod:
    """From its form on the wire; `labels`, `started` and `deleted` are not of the spec."""
    metadata: Object = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    status: Object = {"startTime": spec.pop("started")} if "started" in spec else {}
    metadata |= {key: spec.pop(key, None) for key in ("labels", "annotations")}
    metadata["deletionTimestamp"] = spec.pop("deleted", None)
    status["conditions"] = spec.pop("conditions", None)
    requests = {"cpu": cpu} if cpu else {}
    spec.setdefault("containers", [container(**requests)])
    body = {"metadata": metadata, "spec": {"priority": priority, **spec}, "status": status}
    return msgspec.json.decode(msgspec.json.encode(body), type=Pod)


def container(**requests: Any) -> Object:
    """`sidecar` and `ports` are not requests."""
    beside, ports = requests.pop("sidecar", False), requests.pop("ports", None)
    body: Object = {"name": "c", "resources": {"requests": requests}, "ports": ports}
    return {**body, "restartPolicy": "Always"} if beside else body


def node(
    name: str = "n",
    *,
    cpu: str = "4",
    pods: int = 110,
    labels: dict[str, str] | None = None,
    taints: tuple[Taint, ...] = (),
    unschedulable: bool = False,
    **offers: str,
) -> Node:
    allocatable = {"cpu": cpu, "memory": "8Gi", "pods": str(pods), **offers}
    body: Object = {
        "metadata": {"name": name, "labels": labels},
        "spec": {"unschedulable": unschedulable},
        "status": {"allocatable": allocatable},
    }
    parsed = msgspec.json.decode(msgspec.json.encode(body), type=Node)
    spec = msgspec.structs.replace(parsed.spec, taints=taints)
    return msgspec.structs.replace(parsed, spec=spec)


def demand(name: str = "p", **more: Any) -> Demand:
    return Demands().of(pod(name, **more))


def place(*pods: Pod, **more: Any) -> NodeInfo:
    """A node with these pods."""
    scheduler_cache = cluster(node(**more))
    for each in pods:
        scheduler_cache.put_pod(each, "n")
    return scheduler_cache.places["n"]


def cluster(*nodes: Node, seed: int = 1) -> SchedulerCache:
    scheduler_cache = SchedulerCache(Rand(seed))
    for each in nodes:
        scheduler_cache.put_node(each)
    return scheduler_cache
