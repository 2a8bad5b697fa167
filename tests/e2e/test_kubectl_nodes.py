# SPDX-License-Identifier: Apache-2.0
"""kubectl and nodes: taints, cordon, and drain with the evictions that it asks for."""

import json
from collections.abc import Iterator

import pytest

from tests.e2e import objects
from tests.e2e.cluster import Api, Kubectl

NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


@pytest.fixture
def node(api: Api, namespace: str) -> Iterator[str]:
    api.create("/api/v1/nodes", objects.node(namespace))
    yield namespace
    api.ask("DELETE", f"/api/v1/nodes/{namespace}")


def spec(kubectl: Kubectl, node: str) -> objects.Object:
    found: objects.Object = kubectl.object("get", "node", node)["spec"]
    return found


def test_get_shows_a_node(kubectl: Kubectl, node: str) -> None:
    assert kubectl("get", "nodes", node, "--no-headers").split()[:3] == [node, "Unknown", "<none>"]
    ready = '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
    kubectl("patch", "node", node, "--subresource", "status", "-p", ready)
    kubectl("label", "node", node, "node-role.kubernetes.io/worker=")
    told = kubectl("get", "nodes", node, "-o", "wide", "--no-headers").split()
    assert told[:3] == [node, "Ready", "worker"]


def test_describe_shows_a_node(kubectl: Kubectl, node: str) -> None:
    kubectl("create", "-f", "-", stdin=objects.pod("a", node=node))
    told = kubectl("describe", "node", node)
    assert "Taints:             node.kubernetes.io/not-ready:NoSchedule\n" in told
    assert "Unschedulable:      false\n" in told
    assert "Non-terminated Pods:          (1 in total)" in told


def test_a_new_node_is_not_ready(kubectl: Kubectl, node: str) -> None:
    assert spec(kubectl, node) == {"taints": [NOT_READY]}


def test_taint_adds_overwrites_and_removes(kubectl: Kubectl, node: str) -> None:
    assert kubectl("taint", "nodes", node, "a=b:NoExecute") == f"node/{node} tainted\n"
    added = [each for each in spec(kubectl, node)["taints"] if each["key"] == "a"]
    assert added == [{"key": "a", "value": "b", "effect": "NoExecute"}]
    told = kubectl.refused("taint", "nodes", node, "a=c:NoExecute")
    assert "and --overwrite is false" in told
    told = kubectl("taint", "nodes", node, "a=c:NoExecute", "--overwrite")
    assert told == f"node/{node} modified\n"
    assert kubectl("taint", "nodes", node, "a-") == f"node/{node} untainted\n"
    assert spec(kubectl, node) == {"taints": [NOT_READY]}


def test_cordon_and_uncordon(kubectl: Kubectl, node: str) -> None:
    assert kubectl("cordon", node) == f"node/{node} cordoned\n"
    assert spec(kubectl, node)["unschedulable"] is True
    told = kubectl("get", "node", node, "--no-headers")
    assert told.split()[1] == "Unknown,SchedulingDisabled"
    assert kubectl("cordon", node) == f"node/{node} already cordoned\n"
    assert kubectl("uncordon", node) == f"node/{node} uncordoned\n"
    assert "unschedulable" not in spec(kubectl, node)


def drain(node: str, *args: str) -> tuple[str, ...]:
    return ("drain", node, "--force", "--grace-period=0", *args)


def test_drain_evicts_the_pods_of_a_node(kubectl: Kubectl, node: str) -> None:
    for name in ("a", "b"):
        kubectl("create", "-f", "-", stdin=objects.pod(name, node=node))
    kubectl("create", "-f", "-", stdin=objects.pod("other", node="another-node"))
    told = kubectl(*drain(node)).splitlines()
    assert told[0] == f"node/{node} cordoned"
    assert told[-1] == f"node/{node} drained"
    assert sorted(line for line in told if line.endswith("evicted")) == [
        "pod/a evicted",
        "pod/b evicted",
    ]
    assert kubectl("get", "pods", "-o", "name") == "pod/other\n"


def budgeted(kubectl: Kubectl, node: str, *, allowed: int) -> None:
    """A pod under a budget that a disruption controller has worked on."""
    kubectl("create", "-f", "-", stdin=objects.pod("a", node=node, labels={"x": "1"}))
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
    told = kubectl.refused(*drain(node, "--timeout=4s"))
    assert "Cannot evict pod as it would violate the pod's disruption budget." in told
    assert "global timeout reached: 4s" in told
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
    told = kubectl(*drain(node, "--disable-eviction"))
    assert "pod/a deleted" in told.splitlines()
    assert kubectl("get", "pods", "-o", "name") == ""


def test_drain_by_dry_run_evicts_nothing(kubectl: Kubectl, node: str) -> None:
    kubectl("create", "-f", "-", stdin=objects.pod("a", node=node))
    told = kubectl("drain", node, "--force", "--dry-run=server")
    assert f"node/{node} drained (server dry run)" in told.splitlines()
    assert kubectl("get", "pods", "-o", "name") == "pod/a\n"
    assert "unschedulable" not in spec(kubectl, node)


def test_an_evicted_pod_says_why_it_ends(kubectl: Kubectl, api: Api, node: str) -> None:
    kubectl("create", "-f", "-", stdin=objects.pod("a", node=node))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/a/eviction"
    assert api.create(path, eviction)["status"] == "Success"
    pod = kubectl.object("get", "pod", "a")
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
    target = [each for each in pod["status"]["conditions"] if each["type"] == "DisruptionTarget"]
    assert [(each["status"], each["reason"], each["message"]) for each in target] == [
        ("True", "EvictionByEvictionAPI", "Eviction API: evicting")
    ]
