# SPDX-License-Identifier: Apache-2.0
"""What the feature gates of `refloat up` let through, and what a roll-back leaves behind."""

from pathlib import Path

import pytest

from tests import builders
from tests.e2e import cluster, objects
from tests.e2e.cluster import Api, Kubectl

NODES = "/api/v1/nodes"
FORCE = {"key": "example.com/dead", "value": "yes", "effect": "ForceEviction"}
REFUSED = (
    'Unsupported value: "ForceEviction": '
    'supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"'
)
ON = "--feature-gates=TaintForceEviction=true"


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


def effects(node: objects.Object) -> list[str]:
    return [taint["effect"] for taint in node["spec"]["taints"]]


def test_force_eviction_is_refused_while_its_gate_is_off(api: Api, namespace: str) -> None:
    answer = api.ask("POST", NODES, builders.node(namespace, taints=[FORCE]))
    assert answer.status == 422
    assert answer.object["reason"] == "Invalid"
    assert answer.object["message"] == (
        f'Node "{namespace}" is invalid: metadata.taints[0].effect: {REFUSED}'
    )
    [cause] = answer.object["details"]["causes"]
    assert (cause["reason"], cause["field"]) == (
        "FieldValueNotSupported",
        "metadata.taints[0].effect",
    )


def test_force_eviction_is_refused_on_a_node_that_is_there(api: Api, namespace: str) -> None:
    api.create(NODES, builders.node(namespace))
    patch = {"spec": {"taints": [FORCE]}}
    answer = api.ask(
        "PATCH", f"{NODES}/{namespace}", patch, content_type="application/merge-patch+json"
    )
    assert (answer.status, answer.object["reason"]) == (422, "Invalid")
    assert REFUSED in answer.object["message"]
    api.done("DELETE", f"{NODES}/{namespace}")


@pytest.mark.parametrize("by", ["flag", "file"])
def test_force_eviction_is_accepted_while_its_gate_is_on(
    data_dir: Path, tmp_path: Path, by: str
) -> None:
    file = tmp_path / "refloat.yaml"
    file.write_text(
        "apiVersion: config.refloat.dev/v1alpha1\nkind: Configuration\n"
        "featureGates: {TaintForceEviction: true}\n"
    )
    flags = [ON] if by == "flag" else [f"--config={file}"]
    with cluster.serving(data_dir, *flags) as server:
        node = Api(server.kubeconfig).create(NODES, builders.node("n1", taints=[FORCE]))
    assert FORCE in node["spec"]["taints"]


def test_force_eviction_is_tolerated_while_its_gate_is_on(data_dir: Path) -> None:
    """Tolerations outlive the gate like taints; kubectl can read unknown effects."""
    toleration = {"key": "example.com/dead", "operator": "Exists", "effect": "ForceEviction"}
    pods = "/api/v1/namespaces/default/pods"
    with cluster.serving(data_dir, ON, "--controllers", "none") as server:
        api = Api(server.kubeconfig)
        pod = api.create(pods, builders.pod("a", spec={"tolerations": [toleration]}))
        assert toleration in pod["spec"]["tolerations"]
        patient = {**toleration, "tolerationSeconds": 5}
        answer = api.ask("POST", pods, builders.pod("b", spec={"tolerations": [patient]}))
        assert (answer.status, "must be 'NoExecute'" in answer.object["message"]) == (422, True)
        assert server.end() == 0
    with cluster.serving(data_dir, "--controllers", "none"):
        labelled = api.patch(f"{pods}/a", {"metadata": {"labels": {"x": "1"}}})
        assert labelled["spec"] == pod["spec"]
        answer = api.ask("POST", pods, builders.pod("b", spec={"tolerations": [toleration]}))
        assert answer.status == 422
        assert f"spec.tolerations[0].effect: {REFUSED}" in answer.object["message"]


def test_the_flag_has_the_last_word(data_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "refloat.yaml"
    file.write_text(
        "apiVersion: config.refloat.dev/v1alpha1\nkind: Configuration\n"
        "featureGates: {TaintForceEviction: true}\n"
    )
    off = "--feature-gates=TaintForceEviction=false"
    with cluster.serving(data_dir, f"--config={file}", off) as server:
        answer = Api(server.kubeconfig).ask("POST", NODES, builders.node("n1", taints=[FORCE]))
    assert answer.status == 422


def test_what_was_stored_outlives_its_gate(data_dir: Path) -> None:
    """On, off, on: readable and updatable while the gate is off, and no new ones."""
    with cluster.serving(data_dir, ON) as server:
        api = Api(server.kubeconfig)
        node = api.create(NODES, builders.node("n1", taints=[FORCE]))
        api.create(NODES, builders.node("n2"))
        assert server.end() == 0
    with cluster.serving(data_dir) as server:
        assert api.get(f"{NODES}/n1") == node
        labeled = api.patch(f"{NODES}/n1", {"metadata": {"labels": {"x": "1"}}})
        assert labeled["spec"] == node["spec"]
        whole = api.done("PUT", f"{NODES}/n1", {**labeled, "status": {}})
        assert whole["spec"] == node["spec"]
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        assert api.patch(f"{NODES}/n1/status", ready)["spec"] == node["spec"]
        merge = {"content_type": "application/merge-patch+json"}
        patch = {"spec": {"taints": [FORCE]}}
        assert api.ask("PATCH", f"{NODES}/n2", patch, **merge).status == 422
        assert server.end() == 0
    with cluster.serving(data_dir, ON) as server:
        assert "ForceEviction" in effects(api.get(f"{NODES}/n1"))
        assert "ForceEviction" in effects(api.patch(f"{NODES}/n2", patch))


def test_a_taint_that_outlived_its_gate_can_be_taken_away(data_dir: Path, home: Path) -> None:
    with cluster.serving(data_dir, ON) as server:
        Api(server.kubeconfig).create(NODES, builders.node("n1", taints=[FORCE]))
        assert server.end() == 0
    with cluster.serving(data_dir) as server:
        kubectl = Kubectl(server.kubeconfig, home)
        assert kubectl("taint", "nodes", "n1", f"{FORCE['key']}-") == "node/n1 untainted\n"
        assert "ForceEviction" not in effects(kubectl.object("get", "node", "n1"))


# -- policies of Jobs ----------------------------------------------------

JOBS = "/apis/batch/v1/namespaces/default/jobs"
RULES = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}
NO_POLICIES = "--feature-gates=JobPodFailurePolicy=false,JobPodReplacementPolicy=false"


def policies(job: objects.Object) -> tuple[object, object]:
    return job["spec"].get("podFailurePolicy"), job["spec"].get("podReplacementPolicy")


def test_policies_of_jobs_outlive_their_gates_and_no_new_ones_come(data_dir: Path) -> None:
    """On, off, on. docs/gates.md has the whole table."""
    none = ("--controllers", "none")
    with cluster.serving(data_dir, *none) as server:
        api = Api(server.kubeconfig)
        api.create(JOBS, builders.job("old", spec={"podFailurePolicy": RULES}))
        assert server.end() == 0
    with cluster.serving(data_dir, NO_POLICIES, *none) as server:
        assert policies(api.patch(f"{JOBS}/old", {"spec": {"parallelism": 2}})) == (RULES, "Failed")
        job = api.create(JOBS, builders.job("new", spec={"podFailurePolicy": RULES}))
        assert policies(job) == (None, None)
        assert server.end() == 0
    with cluster.serving(data_dir, *none) as server:
        assert policies(api.get(f"{JOBS}/old")) == (RULES, "Failed")
        labelled = api.patch(f"{JOBS}/new", {"metadata": {"labels": {"a": "b"}}})
        assert policies(labelled) == (None, "TerminatingOrFailed")
        assert labelled["metadata"]["generation"] == 1


# -- the reason of a delete ----------------------------------------------


@pytest.fixture
def pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


REASON = {"apiVersion": "v1", "kind": "DeleteOptions", "reason": "NodeIsDead"}


def test_the_reason_of_a_delete_is_kept_in_the_pods_status(api: Api, pods: str) -> None:
    api.create(pods, builders.pod("a", node="n1"))
    answer = api.done("DELETE", f"{pods}/a", REASON)
    assert answer["status"]["reason"] == "NodeIsDead"
    assert answer["metadata"]["deletionGracePeriodSeconds"] == 30
    assert api.get(f"{pods}/a")["status"]["reason"] == "NodeIsDead"


def test_the_reason_of_a_delete_outlives_writes_of_the_status(api: Api, pods: str) -> None:
    pod = api.create(pods, builders.pod("a", node="n1"))
    api.done("DELETE", f"{pods}/a", REASON)
    patched = api.patch(f"{pods}/a/status", {"status": {"phase": "Running"}})
    assert patched["status"]["reason"] == "NodeIsDead"
    del pod["metadata"]["resourceVersion"]
    current = api.done("PUT", f"{pods}/a/status", {**pod, "status": {"phase": "Failed"}})
    assert (current["status"]["phase"], current["status"]["reason"]) == ("Failed", "NodeIsDead")


def test_the_reason_of_an_eviction_is_kept_too(api: Api, pods: str) -> None:
    api.create(pods, builders.pod("a", node="n1"))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
    api.create(f"{pods}/a/eviction", {**eviction, "deleteOptions": {"reason": "NodeIsDead"}})
    assert api.get(f"{pods}/a")["status"]["reason"] == "NodeIsDead"


def test_a_delete_without_a_reason_says_none(api: Api, pods: str) -> None:
    api.create(pods, builders.pod("a", node="n1"))
    api.done("DELETE", f"{pods}/a")
    assert "reason" not in api.get(f"{pods}/a")["status"]


def test_the_last_sight_of_a_pod_deleted_at_once_has_the_reason(api: Api, pods: str) -> None:
    start = api.get(pods)["metadata"]["resourceVersion"]
    api.create(pods, builders.pod("a", node="n1"))
    with api.watch(pods, resourceVersion=start) as stream:
        api.done("DELETE", f"{pods}/a", {**REASON, "gracePeriodSeconds": 0})
        events = [stream.next() for _ in range(3)]
    assert [kind for kind, _ in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert events[-1][1]["status"]["reason"] == "NodeIsDead"
