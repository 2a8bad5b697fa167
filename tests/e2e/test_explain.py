# SPDX-License-Identifier: Apache-2.0
"""`refloat explain`, as a user asks it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import cluster, objects
from tests.e2e.cluster import Api

UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
OPTED_IN = {"kueue.x-k8s.io/safe-to-forcefully-terminate": "true"}


@pytest.fixture
def node(api: Api, namespace: str) -> Iterator[str]:
    """One that is lost, with a pod `stuck` on it that is being deleted."""
    lost = objects.node(namespace)
    lost["spec"] = {**lost.get("spec", {}), "taints": [UNREACHABLE]}
    api.create("/api/v1/nodes", lost)
    pod = objects.pod("stuck", node=namespace)
    pod["metadata"]["annotations"] = OPTED_IN
    path = f"/api/v1/namespaces/{namespace}/pods"
    api.create(path, pod)
    api.ask("DELETE", f"{path}/stuck")
    yield namespace
    api.ask("DELETE", f"/api/v1/nodes/{namespace}")


def explain(kubeconfig: Path, *args: str) -> str:
    done = cluster.run("explain", "--kubeconfig", str(kubeconfig), *args)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_stuck_pod_is_explained(kubeconfig: Path, node: str) -> None:
    told = explain(kubeconfig, "pod/stuck", "-n", node)
    assert told.startswith(f"pod {node}/stuck\n")
    assert "its grace of 30s ends at" in told
    assert all(len(line) <= 80 for line in told.splitlines())


def test_a_node_is_explained_for_machines_too(kubeconfig: Path, node: str) -> None:
    told = json.loads(explain(kubeconfig, f"node/{node}", "-o", "json"))
    assert told["subject"] == f"node {node}"
    assert {"about": "pods", "text": "1 Terminating"} in told["points"]
    assert explain(kubeconfig, f"no/{node}", "-o", "yaml").startswith(f"subject: node {node}\n")


def test_what_is_not_there_is_said_in_one_line(kubeconfig: Path, namespace: str) -> None:
    done = cluster.run("explain", "--kubeconfig", str(kubeconfig), "pod/nobody", "-n", namespace)
    assert (done.returncode, done.stderr) == (1, 'refloat: pods "nobody" not found\n')


def test_what_cannot_be_explained_is_wrong_use(kubeconfig: Path) -> None:
    done = cluster.run("explain", "--kubeconfig", str(kubeconfig), "lease/x")
    assert done.returncode == 2
    assert "expected pod/NAME or node/NAME" in done.stderr
