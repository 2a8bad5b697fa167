# SPDX-License-Identifier: Apache-2.0
"""kubectl and nodes: taints, cordon, and drain with the evictions that a drain requests."""

import json
from collections.abc import Iterator

import pytest

from tests import builders
from tests.e2e import objects
from tests.e2e.cluster import Api, Kubectl

NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


@pytest.fixture
def node(api: Api, namespace: str) -> Iterator[str]:
    api.create("/api/v1/nodes", builders.node(namespace))
    yield namespace
    api.ask("DELETE", f"/api/v1/nodes/{namespace}")


def spec(kubectl: Kubectl, node: str) -> objects.Object:
    spec: objects.Object = kubectl.object("get", "node", node)["spec"]
    return spec


def test_get_shows_a_node(kubectl: Kubectl, node: str) -> None:
    assert kubectl("get", "nodes", node, "--no-headers").split()[:3] == [node, "Unknown", "<none>"]
    ready = '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
    kubectl("patch", "node", node, "--subresource", "status", "-p", ready)
    kubectl("label", "node", node, "node-role.kubernetes.io/worker=")
    columns = kubectl("get", "nodes", node, "-o", "wide", "--no-headers").split()
    assert columns[:3] == [node, "Ready", "worker"]


def test_describe_shows_a_node(kubectl: Kubectl, node: str) -> None:
    kubectl("create", "-f", "-", stdin=builders.pod("a", node=node))
    output = kubectl("describe", "node", node)
    assert "Taints:             node.kubernetes.io/not-ready:NoSchedule\n" in output
    assert "Unschedulable:      false\n" in output
    assert "Non-terminated Pods:          (1 in total)" in output


def test_a_new_node_is_not_ready(kubectl: Kubectl, node: str) -> None:
    assert spec(kubectl, node) == {"taints": [NOT_READY]}


def test_taint_adds_overwrites_and_removes(kubectl: Kubectl, node: str) -> None:
    assert kubectl("taint", "nodes", node, "a=b:NoExecute") == f"node/{node} tainted\n"
    added = [each for each in spec(kubectl, node)["taints"] if each["key"] == "a"]
    assert added == [{"key": "a", "value": "b", "effect": "NoExecute"}]
    output = kubectl.refused("taint", "nodes", node, "a=c:NoExecute")
    assert "and --overwrite is false" in output
    output = kubectl("taint", "nodes", node, "a=c:NoExecute", "--overwrite")
    assert output == f"node/{node} modified\n"
    assert kubectl("taint", "nodes", node, "a-") == f"node/{node} untainted\n"
    assert spec(kubectl, node) == {"taints": [NOT_READY]}


def test_cordon_and_uncordon(kubectl: Kubectl, node: str) -> None:
    assert kubectl("cordon", node) == f"node/{node} cordoned\n"
    assert spec(kubectl, node)["unschedulable"] is True
    output = kubectl("get", "node", node, "--no-headers")
    assert output.split()[1] == "Unknown,SchedulingDisabled"
    assert kubectl("cordon", node) == f"node/{node} already cordoned\n"
    assert kubectl("uncordon", node) == f"node/{node} uncordoned\n"
    assert "unschedulable" not in spec(kubectl, node)


def drain(node: str, *args: str) -> tuple[str, ...]:
    return ("drain", node, "--force", "--grace-period=0", *args)


def test_drain_evicts_the_pods_of_a_node(kubectl: Kubectl, node: str) -> None:
    for name in ("a", "b"):
        kubectl("create", "-f", "-", stdin=builders.pod(name, node=node))
    kubectl("create", "-f", "-", stdin=builders.pod("other", node="another-node"))
    lines = kubectl(*drain(node)).splitlines()
    assert lines[0] == f"node/{node} cordoned"
    assert lines[-1] == f"node/{node} drained"
    assert sorted(line for line in lines if line.endswith("evicted")) == [
        "pod/a evicted",
        "pod/b evicted",
    ]
    assert kubectl("get", "pods", "-o", "name") == "pod/other\n"


def budgeted(kubectl: Kubectl, node: str, *, allowed: int) -> None:
    """A pod under a budget that a disruption controller has worked on."""
    kubectl("create", "-f", "-", stdin=builders.pod("a", node=node, labels={"x": "1"}))
    conditions = '{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}'
    kubectl("patch", "pod", "a", "--subresource", "status", "-p", conditions)
    kubectl("create", "-f", "-", stdin=objects.budget("budget", {"x": "1"}, min_available=1))
    status = {
        "disruptionsAllowed": allowed,
        "currentHealthy": 1 + allowed,
        "desiredHealthy": 1,
        "expectedPods": 1 + allowed,
        "observedGeneration": 1,
    }
    patch = json.dumps({"status": status})
    kubectl("patch", "pdb", "budget", "--subresource", "status", "--type", "merge", "-p", patch)


def test_drain_stops_at_a_budget(kubectl: Kubectl, node: str) -> None:
    budgeted(kubectl, node, allowed=0)
    error = kubectl.refused(*drain(node, "--timeout=4s"))
    assert "Cannot evict pod as it would violate the pod's disruption budget." in error
    assert "global timeout reached: 4s" in error
    assert kubectl("get", "pods", "-o", "name") == "pod/a\n"


def test_drain_takes_from_a_budget_what_it_allows(kubectl: Kubectl, node: str) -> None:
    budgeted(kubectl, node, allowed=1)
    kubectl(*drain(node))
    assert kubectl("get", "pods", "-o", "name") == ""
    status = kubectl.object("get", "pdb", "budget")["status"]
    assert status["disruptionsAllowed"] == 0
    assert list(status["disruptedPods"]) == ["a"]


def test_drain_without_eviction_deletes(kubectl: Kubectl, node: str) -> None:
    budgeted(kubectl, node, allowed=0)
    output = kubectl(*drain(node, "--disable-eviction"))
    assert "pod/a deleted" in output.splitlines()
    assert kubectl("get", "pods", "-o", "name") == ""


def test_drain_by_dry_run_evicts_nothing(kubectl: Kubectl, node: str) -> None:
    kubectl("create", "-f", "-", stdin=builders.pod("a", node=node))
    output = kubectl("drain", node, "--force", "--dry-run=server")
    assert f"node/{node} drained (server dry run)" in output.splitlines()
    assert kubectl("get", "pods", "-o", "name") == "pod/a\n"
    assert "unschedulable" not in spec(kubectl, node)


def test_an_evicted_pod_says_why_it_ends(kubectl: Kubectl, api: Api, node: str) -> None:
    kubectl("create", "-f", "-", stdin=builders.pod("a", node=node))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/a/eviction"
    assert api.create(path, eviction)["status"] == "Success"
    pod = kubectl.object("get", "pod", "a")
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
    target = [each for each in pod["status"]["conditions"] if each["type"] == "DisruptionTarget"]
    assert [(each["status"], each["reason"], each["message"]) for each in target] == [
        ("True", "EvictionByEvictionAPI", "Eviction API: evicting")
    ]
