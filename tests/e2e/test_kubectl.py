# SPDX-License-Identifier: Apache-2.0
"""kubectl discovers the API, and creates and shows objects.

Changes are in test_kubectl_changes.py, deletions and waits in
test_kubectl_ends.py, and nodes are in test_kubectl_nodes.py.
"""

import base64
import re

import pytest

from tests import builders
from tests.e2e import objects
from tests.e2e.cluster import Api, Kubectl

NEVER = "<none>"


def cells(text: str) -> list[list[str]]:
    """The cells of a printed table; no cell has two blanks in a row."""
    return [re.split(r" {2,}", line.strip()) for line in text.splitlines()]


# -- what there is -------------------------------------------------------


def test_get_raw_asks_whether_the_server_is_ready(kubectl: Kubectl) -> None:
    assert kubectl("get", "--raw", "/readyz") == "ok"


def test_version_tells_the_servers(kubectl: Kubectl) -> None:
    version = kubectl.object("version")["serverVersion"]
    assert version["major"] == "1"
    assert re.fullmatch(r"v1\.\d+\.\d+.*", version["gitVersion"])


API_RESOURCES = [
    ["configmaps", "cm", "v1", "true", "ConfigMap"],
    ["events", "ev", "v1", "true", "Event"],
    ["namespaces", "ns", "v1", "false", "Namespace"],
    ["nodes", "no", "v1", "false", "Node"],
    ["persistentvolumeclaims", "pvc", "v1", "true", "PersistentVolumeClaim"],
    ["persistentvolumes", "pv", "v1", "false", "PersistentVolume"],
    ["pods", "po", "v1", "true", "Pod"],
    ["secrets", "v1", "true", "Secret"],
    ["serviceaccounts", "sa", "v1", "true", "ServiceAccount"],
    ["services", "svc", "v1", "true", "Service"],
    ["jobs", "batch/v1", "true", "Job"],
    ["leases", "coordination.k8s.io/v1", "true", "Lease"],
    ["events", "ev", "events.k8s.io/v1", "true", "Event"],
    ["poddisruptionbudgets", "pdb", "policy/v1", "true", "PodDisruptionBudget"],
    ["priorityclasses", "pc", "scheduling.k8s.io/v1", "false", "PriorityClass"],
    ["volumeattachments", "storage.k8s.io/v1", "false", "VolumeAttachment"],
]


def test_api_resources_lists_every_kind_with_its_names(kubectl: Kubectl) -> None:
    rows = cells(kubectl("api-resources"))
    assert rows[0] == ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"]
    assert [row for row in API_RESOURCES if row not in rows] == []


def test_api_resources_knows_what_is_in_the_category_all(kubectl: Kubectl) -> None:
    resources = kubectl("api-resources", "--categories", "all", "-o", "name").split()
    assert {"pods", "services", "jobs.batch"} <= set(resources)


def test_api_versions_lists_every_group(kubectl: Kubectl) -> None:
    versions = kubectl("api-versions").split()
    assert {row[-3] for row in API_RESOURCES} <= set(versions)


def test_explain_shows_a_field_with_its_type(kubectl: Kubectl) -> None:
    output = kubectl("explain", "job.spec.podFailurePolicy.rules")
    assert "GROUP:      batch\nKIND:       Job\nVERSION:    v1\n" in output
    assert "FIELD: rules <[]PodFailurePolicyRule>" in output
    fields = re.findall(r"^  (\w+)\t<([^>]+)>( -required-)?", output, re.MULTILINE)
    assert fields == [
        ("action", "string", " -required-"),
        ("onExitCodes", "PodFailurePolicyOnExitCodesRequirement", ""),
        ("onPodConditions", "[]PodFailurePolicyOnPodConditionsPattern", ""),
    ]
    assert "enum: Count, FailIndex, FailJob, Ignore" in output


@pytest.mark.parametrize(
    ("path", "want"),
    [
        ("pod", "KIND:       Pod\nVERSION:    v1\n"),
        ("pods.spec.containers.resources.limits", "FIELD: limits <map[string]Quantity>"),
        ("node.spec.taints", "FIELD: taints <[]Taint>"),
        ("pdb.spec.minAvailable", "FIELD: minAvailable <IntOrString>"),
        ("events.v1.events.k8s.io", "GROUP:      events.k8s.io\nKIND:       Event\n"),
    ],
)
def test_explain_knows(kubectl: Kubectl, path: str, want: str) -> None:
    args = ["explain", path]
    if path.endswith(".k8s.io"):
        args = ["explain", "events", "--api-version", "events.k8s.io/v1"]
    assert want in kubectl(*args)


def test_explain_does_not_know_a_field_that_is_not_there(kubectl: Kubectl) -> None:
    assert 'field "nope" does not exist' in kubectl.refused("explain", "job.spec.nope")


# -- creating by command -------------------------------------------------


def test_create_namespace(kubectl: Kubectl, namespace: str) -> None:
    name = f"{namespace}-more"
    assert kubectl("create", "namespace", name) == f"namespace/{name} created\n"
    obj = kubectl.object("get", "namespace", name)
    assert obj["status"] == {"phase": "Active"}
    assert obj["spec"] == {"finalizers": ["kubernetes"]}
    assert obj["metadata"]["labels"] == {"kubernetes.io/metadata.name": name}


def test_create_namespace_twice_is_refused(kubectl: Kubectl, namespace: str) -> None:
    assert kubectl.refused("create", "ns", namespace) == (
        f'Error from server (AlreadyExists): namespaces "{namespace}" already exists\n'
    )


def test_create_configmap(kubectl: Kubectl) -> None:
    output = kubectl("create", "configmap", "settings", "--from-literal", "a=1")
    assert output == "configmap/settings created\n"
    assert kubectl.object("get", "cm", "settings")["data"] == {"a": "1"}


def test_create_secret(kubectl: Kubectl) -> None:
    output = kubectl("create", "secret", "generic", "password", "--from-literal", "a=ä")
    assert output == "secret/password created\n"
    secret = kubectl.object("get", "secret", "password")
    assert secret["type"] == "Opaque"
    assert secret["data"] == {"a": base64.b64encode("ä".encode()).decode()}


def test_create_poddisruptionbudget(kubectl: Kubectl) -> None:
    output = kubectl("create", "pdb", "some", "--selector", "a=b", "--min-available", "50%")
    assert output == "poddisruptionbudget.policy/some created\n"
    spec = kubectl.object("get", "pdb", "some")["spec"]
    assert spec == {"minAvailable": "50%", "selector": {"matchLabels": {"a": "b"}}}


def test_create_priorityclass(kubectl: Kubectl, api: Api, namespace: str) -> None:
    output = kubectl("create", "priorityclass", namespace, "--value", "1000")
    assert output == f"priorityclass.scheduling.k8s.io/{namespace} created\n"
    priority_class = kubectl.object("get", "pc", namespace)
    assert (priority_class["value"], priority_class["preemptionPolicy"]) == (
        1000,
        "PreemptLowerPriority",
    )
    api.done("DELETE", f"/apis/scheduling.k8s.io/v1/priorityclasses/{namespace}")


def test_create_job(kubectl: Kubectl) -> None:
    output = kubectl(
        "create", "job", "count", "--image", "registry.example/a", "--", "sh", "-c", "1"
    )
    assert output == "job.batch/count created\n"
    job = kubectl.object("get", "job", "count")
    spec, uid = job["spec"], job["metadata"]["uid"]
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (1, 1, 6)
    assert (spec["podReplacementPolicy"], spec["completionMode"]) == (
        "TerminatingOrFailed",
        "NonIndexed",
    )
    assert spec["template"]["spec"]["containers"][0]["command"] == ["sh", "-c", "1"]
    assert job["status"] == {}


def test_create_serviceaccount(kubectl: Kubectl) -> None:
    assert kubectl("create", "serviceaccount", "robot") == "serviceaccount/robot created\n"


def test_run_makes_a_pod(kubectl: Kubectl) -> None:
    output = kubectl("run", "once", "--image", "registry.example/a", "--restart", "Never")
    assert output == "pod/once created\n"
    pod = kubectl.object("get", "pod", "once")
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


def test_create_by_dry_run_leaves_nothing(kubectl: Kubectl) -> None:
    output = kubectl("create", "configmap", "none", "--dry-run=server")
    assert output == "configmap/none created (server dry run)\n"
    assert kubectl("get", "configmap", "none", "--ignore-not-found") == ""


def test_an_object_that_is_invalid_is_refused_in_kubernetes_words(kubectl: Kubectl) -> None:
    body = builders.job("bad", spec={"podFailurePolicy": {"rules": [{"action": "Count"}]}})
    assert kubectl.refused("create", "-f", "-", stdin=body) == (
        'The Job "bad" is invalid: spec.podFailurePolicy.rules[0]: Invalid value: '
        "specifying one of OnExitCodes and OnPodConditions is required\n"
    )


def test_an_unknown_field_is_refused(kubectl: Kubectl) -> None:
    body = builders.job("bad", spec={"backofLimit": 1})
    error = kubectl.refused("create", "-f", "-", stdin=body)
    assert 'strict decoding error: unknown field "spec.backofLimit"' in error


def test_what_is_not_there_is_not_found(kubectl: Kubectl) -> None:
    error = kubectl.refused("get", "job", "nope")
    assert error == 'Error from server (NotFound): jobs.batch "nope" not found\n'


# -- showing -------------------------------------------------------------


def test_get_wide_shows_a_pod(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=builders.pod("a", node="n1"))
    header, row = cells(kubectl("get", "pods", "-o", "wide"))
    assert header == [
        *("NAME", "READY", "STATUS", "RESTARTS", "AGE"),
        *("IP", "NODE", "NOMINATED NODE", "READINESS GATES"),
    ]
    age = row.pop(4)
    assert row == ["a", "0/1", "Pending", "0", NEVER, "n1", NEVER, NEVER]
    assert re.fullmatch(r"\d+s", age)


def test_get_wide_shows_a_job(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=builders.job("a", spec={"completions": 3}))
    header, row = cells(kubectl("get", "jobs", "-o", "wide"))
    assert header == [
        *("NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"),
        *("CONTAINERS", "IMAGES", "SELECTOR"),
    ]
    job = kubectl.object("get", "job", "a")
    selector = f"batch.kubernetes.io/controller-uid={job['metadata']['uid']}"
    assert row[:3] == ["a", "Running", "0/3"]
    assert row[-3:] == ["main", builders.CONTAINER["image"], selector]


def test_get_shows_the_end_of_a_job(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=builders.job("a"))
    times = {"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:01:30Z"}
    conditions = (
        '[{"type":"SuccessCriteriaMet","status":"True"},{"type":"Complete","status":"True"}]'
    )
    started, completed = times.values()
    patch = (
        f'{{"status":{{"startTime":"{started}","completionTime":"{completed}","succeeded":1,'
        f'"conditions":{conditions}}}}}'
    )
    kubectl("patch", "job", "a", "--subresource", "status", "--type", "merge", "-p", patch)
    row = cells(kubectl("get", "job", "a", "--no-headers"))[0]
    assert row[:4] == ["a", "Complete", "1/1", "90s"]


def test_get_shows_labels_and_chosen_columns(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=builders.config_map("a", labels={"tier": "x"}))
    rows = cells(kubectl("get", "cm", "a", "-L", "tier", "--show-labels", "--no-headers"))
    assert rows[0][1] == "0"
    assert rows[0][-2:] == ["x", "tier=x"]
    assert kubectl("get", "cm", "a", "-o", "name") == "configmap/a\n"
    columns = "custom-columns=N:.metadata.name,T:.metadata.labels.tier"
    assert cells(kubectl("get", "cm", "a", "-o", columns)) == [["N", "T"], ["a", "x"]]
    assert kubectl("get", "cm", "a", "-o", "jsonpath={.metadata.labels.tier}") == "x"


def test_get_selects_by_labels_and_fields(kubectl: Kubectl) -> None:
    for name, tier, node in (("a", "x", "n1"), ("b", "x", "n2"), ("c", "y", "n1")):
        kubectl("apply", "-f", "-", stdin=builders.pod(name, node=node, labels={"tier": tier}))
    assert kubectl("get", "pods", "-l", "tier in (x)", "-o", "name").split() == ["pod/a", "pod/b"]
    selector = ("--field-selector", "spec.nodeName=n1,status.phase!=Running")
    assert kubectl("get", "pods", *selector, "-o", "name").split() == ["pod/a", "pod/c"]
    assert kubectl("get", "pods", "-l", "!tier", "-o", "name") == ""


def test_get_in_chunks_shows_all(kubectl: Kubectl) -> None:
    items = [builders.config_map(f"m{n}") for n in range(7)]
    kubectl("apply", "-f", "-", stdin={"apiVersion": "v1", "kind": "List", "items": items})
    names = kubectl("get", "cm", "--chunk-size", "3", "-o", "name").split()
    assert [f"configmap/m{n}" for n in range(7)] == [name for name in names if "/m" in name]


def test_get_all_shows_several_kinds(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=builders.pod("a"))
    kubectl("apply", "-f", "-", stdin=builders.job("b"))
    assert kubectl("get", "all", "-o", "name").split() == ["pod/a", "job.batch/b"]


def test_describe_shows_a_pod_and_its_events(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=builders.pod("a", labels={"tier": "x"}))
    about = kubectl.object("get", "pod", "a")
    kubectl("create", "-f", "-", stdin=objects.event("a.1", about, "Broken", "it broke"))
    output = kubectl("describe", "pod", "a")
    assert re.search(r"^Name: +a$", output, re.MULTILINE)
    assert re.search(r"^Labels: +tier=x$", output, re.MULTILINE)
    assert re.search(r"^Status: +Pending$", output, re.MULTILINE)
    assert re.search(r"^ +Image: +busybox$", output, re.MULTILINE)
    assert "node.kubernetes.io/not-ready:NoExecute op=Exists for 300s" in output
    assert re.search(r"Warning +Broken +\S+ +test-controller +it broke", output)


def test_describe_shows_a_job(kubectl: Kubectl) -> None:
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    kubectl(
        "apply", "-f", "-", stdin=builders.job("a", spec={"podFailurePolicy": {"rules": [rule]}})
    )
    output = kubectl("describe", "job", "a")
    assert re.search(r"^Parallelism: +1$", output, re.MULTILINE)
    assert re.search(r"^Pods Statuses: +0 Active .*/ 0 Succeeded / 0 Failed$", output, re.MULTILINE)
    assert re.search(r"^Events: +<none>$", output, re.MULTILINE)


def test_get_events_shows_them(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=builders.pod("a"))
    about = kubectl.object("get", "pod", "a")
    kubectl("create", "-f", "-", stdin=objects.event("a.1", about, "Broken", "it broke"))
    header, row = cells(kubectl("get", "events"))
    assert header == ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert row[1:] == ["Warning", "Broken", "pod/a", "it broke"]
    assert "it broke" in kubectl("events", "--for", "pod/a")
    selector = ("--field-selector", "involvedObject.name=b")
    assert kubectl("get", "events", *selector) == ""
