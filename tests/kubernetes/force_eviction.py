# SPDX-License-Identifier: Apache-2.0
"""On a cluster: Kubernetes' own controllers evict nodes with the request taint.

The nodes have no kubelet; the tests write their status. pytest does not
collect this module: `python -m tests.kubernetes` starts the cluster and runs it.
"""

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import Api
from tests.e2e.node_cluster import until, wait

# The collector of pods looks every 20 s, and the node grace period is 24 s.
PATIENCE_SECONDS = 300.0

NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
REQUEST = {"key": "refloat.dev/force-eviction", "value": "true", "effect": "NoSchedule"}
OUT = "node.kubernetes.io/out-of-service"
PROGRESS = "refloat.dev/force-eviction-progress"

Object = dict[str, Any]

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def api() -> Api:
    return Api(Path(os.environ["REFLOAT_TEST_KUBECONFIG"]))


@pytest.fixture
def node(api: Api) -> Iterator[str]:
    """A node that was there, with a pod that a finalizer keeps in sight."""
    name = f"down-{os.getpid()}-{next(_NUMBERS)}"  # events outlive nodes
    lease = {"metadata": {"name": name}, "spec": {"leaseDurationSeconds": 5}}
    api.create(NODES, {"metadata": {"name": name}})
    api.create(LEASES, lease)
    spec = {"nodeName": name, "containers": [{"name": "main", "image": "busybox:1"}]}
    meta = {"name": name, "finalizers": ["example.com/held"]}
    api.create(PODS, {"metadata": meta, "spec": spec})
    yield name
    api.patch(f"{PODS}/{name}", {"metadata": {"finalizers": None}})
    api.ask("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")
    api.ask("DELETE", f"{NODES}/{name}")
    api.ask("DELETE", f"{LEASES}/{name}")


def set_ready(api: Api, node: str, ready: str) -> None:
    condition = {"type": "Ready", "status": ready, "reason": "Test", "message": ""}
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    status = {"conditions": [{**condition, **times}]}
    api.patch(f"{NODES}/{node}/status", {"status": status})


def request_eviction(api: Api, node: str) -> None:
    """As `kubectl taint` does; the controllers may write taints at the same time."""
    for _ in range(20):
        current = api.get(f"{NODES}/{node}")
        patch = {
            "metadata": {"resourceVersion": current["metadata"]["resourceVersion"]},
            "spec": {"taints": [*(current["spec"].get("taints") or []), REQUEST]},
        }
        merge = "application/merge-patch+json"
        if api.ask("PATCH", f"{NODES}/{node}", patch, content_type=merge).status == 200:
            return
    raise AssertionError(f"{node} cannot be tainted")


def keys(node: Object) -> list[str]:
    keys = [each["key"] for each in node["spec"].get("taints") or ()]
    return [each for each in keys if each in (REQUEST["key"], OUT)]


def reasons(api: Api, node: str) -> list[str]:
    events = api.get(f"/api/v1/events?fieldSelector=involvedObject.name={node}")["items"]
    return [each["reason"] for each in events if each["reason"].startswith("ForceEviction")]


def wait_for_event(api: Api, node: str, reason: str) -> None:
    """The controller records an event after the write that the event reports."""
    wait(lambda: reasons(api, node)[-1:] == [reason], f"no event {reason}")


def is_deleted_by_force(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionGracePeriodSeconds", -1) == 0)


def test_a_node_that_is_down_is_evicted_by_kubernetes(api: Api, node: str) -> None:
    """behaviour C9.1"""
    set_ready(api, node, "False")
    request_eviction(api, node)
    until(api, f"{NODES}/{node}", lambda found: OUT in keys(found))
    pod = until(api, f"{PODS}/{node}", is_deleted_by_force)
    assert pod["status"]["phase"] == "Failed"
    conditions = {each["type"]: each.get("reason") for each in pod["status"]["conditions"]}
    assert conditions["DisruptionTarget"] == "DeletionByTaintManager"
    current = until(api, f"{NODES}/{node}", lambda found: not keys(found))
    assert PROGRESS not in (current["metadata"].get("annotations") or {})
    wait_for_event(api, node, "ForceEvictionFinished")


def test_a_node_that_is_ready_is_refused(api: Api, node: str) -> None:
    set_ready(api, node, "True")
    request_eviction(api, node)
    until(api, f"{NODES}/{node}", lambda found: not keys(found))
    pod = api.get(f"{PODS}/{node}")
    assert "deletionTimestamp" not in pod["metadata"]
    wait_for_event(api, node, "ForceEvictionRefused")
    assert reasons(api, node) == ["ForceEvictionRefused"]


def test_a_node_that_renews_its_lease_is_refused(api: Api, node: str) -> None:
    set_ready(api, node, "False")
    # Only a renewal can refuse the eviction, however late the first one is.
    api.patch(f"{LEASES}/{node}", {"spec": {"leaseDurationSeconds": 60}})
    request_eviction(api, node)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while keys(api.get(f"{NODES}/{node}")):
        assert time.monotonic() < deadline
        now = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime())}.{time.time_ns() % 10**6:06}Z"
        api.patch(f"{LEASES}/{node}", {"spec": {"renewTime": now}})
        time.sleep(0.5)
    assert "deletionTimestamp" not in api.get(f"{PODS}/{node}")["metadata"]
