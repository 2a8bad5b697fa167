# SPDX-License-Identifier: Apache-2.0
"""Refusals in Kubernetes' words, and what a node may not write; over HTTP."""

from typing import Any

import pytest

from tests import builders
from tests.cases import cases
from tests.unit.apiserver.cluster_of_nodes import MERGE, NodesApi

PODS = "/api/v1/namespaces/default/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
NO_RELATIONSHIP = "no relationship found between node 'n1' and this object"

CANNOT_READ: list[tuple[str, str, str]] = [
    # address, what is forbidden, why besides `User ... cannot ...`
    ("/api/v1/nodes/n2", 'get resource "nodes"', "node 'n1' cannot read 'n2', only its own Node"),
    ("/api/v1/nodes", 'list resource "nodes"', "node 'n1' cannot read all nodes, only its own"),
    ("/api/v1/pods", 'list resource "pods"', "can only list/watch pods with spec.nodeName field"),
    (
        "/api/v1/pods?fieldSelector=spec.nodeName!=n1",
        'list resource "pods"',
        "can only list/watch pods with spec.nodeName field selector",
    ),
    (
        "/api/v1/pods?fieldSelector=spec.nodeName=n2&watch=1",
        'watch resource "pods"',
        "can only list/watch pods with spec.nodeName field selector",
    ),
    (
        "/api/v1/watch/pods?fieldSelector=spec.nodeName=n1",
        'watch resource "pods"',
        "can only list/watch pods with spec.nodeName field selector",
    ),
    (f"{PODS}/p2", 'get resource "pods"', NO_RELATIONSHIP),
    (f"{PODS}?fieldSelector=metadata.name=p2", 'list resource "pods"', NO_RELATIONSHIP),
    ("/api/v1/namespaces/default/secrets/s-p2", 'get resource "secrets"', NO_RELATIONSHIP),
    ("/api/v1/namespaces/default/secrets", 'list resource "secrets"', "No Object name found"),
    ("/api/v1/secrets", 'list resource "secrets"', "can only read namespaced object of this type"),
    (
        "/api/v1/namespaces/default/persistentvolumeclaims",
        'list resource "persistentvolumeclaims"',
        "can only get individual resources of this type",
    ),
    (
        "/api/v1/namespaces/default/persistentvolumeclaims/pvc-p1/status",
        'get resource "persistentvolumeclaims/status"',
        "can only get/update/patch this type",
    ),
    ("/api/v1/persistentvolumes/v", 'get resource "persistentvolumes"', NO_RELATIONSHIP),
    (
        "/api/v1/namespaces/default/serviceaccounts",
        'list resource "serviceaccounts"',
        "can only create tokens for individual service accounts",
    ),
    (f"{LEASES}/n2", 'get resource "leases"', "can only access node lease with the same name as"),
    (LEASES, 'list resource "leases"', "can only get, create, update, patch, or delete a node"),
    (
        "/apis/coordination.k8s.io/v1/namespaces/default/leases/n1",
        'get resource "leases"',
        'can only access leases in the "kube-node-lease" system namespace',
    ),
]


@pytest.mark.parametrize(("path", "what", "why"), CANNOT_READ, ids=[row[0] for row in CANNOT_READ])
async def test_a_node_is_told_why_it_may_not_read(
    api: NodesApi, path: str, what: str, why: str
) -> None:
    answer = await api.ask("n1", "GET", path)
    assert answer.status == 403
    message = answer.body["message"]
    assert f'is forbidden: User "system:node:n1" cannot {what} in API group' in message
    assert f": {why}" in message


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/nodes/n1",
        "/api/v1/nodes?fieldSelector=metadata.name=n1",
        "/api/v1/pods?fieldSelector=spec.nodeName=n1",
        f"{PODS}?fieldSelector=spec.nodeName==n1,status.phase!=Failed",
        f"{PODS}?fieldSelector=metadata.name=p1",
        f"{PODS}/p1",
        "/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name=cm-p1",
        "/apis",
        "/readyz",
    ],
)
async def test_a_node_reads_what_is_its_own(api: NodesApi, path: str) -> None:
    assert (await api.ask("n1", "GET", path)).status == 200


async def test_a_node_reads_the_volume_of_a_claim_that_its_pod_names(api: NodesApi) -> None:
    reference = {"namespace": "default", "name": "pvc-p1"}
    for name, more in (("bound", {"uid": "u"}), ("promised", {})):
        body = builders.volume(name)
        body["spec"]["claimRef"] = {**reference, **more}
        assert (await api.ask("admin", "POST", "/api/v1/persistentvolumes", body)).status == 201
    path = "/api/v1/persistentvolumes"
    assert (await api.ask("n1", "GET", f"{path}/bound")).status == 200
    assert (await api.ask("n2", "GET", f"{path}/bound")).status == 403
    assert (await api.ask("n1", "GET", f"{path}/promised")).status == 403
    assert (await api.ask("n1", "GET", path)).status == 403
    assert (await api.ask("n1", "DELETE", f"{path}/bound")).status == 403


async def test_what_a_pod_names_is_not_found_rather_than_forbidden(api: NodesApi) -> None:
    answer = await api.ask("n1", "GET", "/api/v1/namespaces/default/secrets/s-p1")
    assert answer.status == 404


Row = tuple[str, str, Any, str]

REFUSED_WRITES: dict[str, Row] = {
    # method, path, body, message
    "another node": (
        "POST",
        "/api/v1/nodes",
        {"metadata": {"name": "n3"}},
        'nodes "n3" is forbidden: node "n1" is not allowed to modify node "n3"',
    ),
    "a node with a generated name": (
        "POST",
        "/api/v1/nodes",
        {"metadata": {"generateName": "n"}},
        'nodes "n" is forbidden: node "n1" is not allowed to modify node ""',
    ),
    "a node without a name": (
        "POST",
        "/api/v1/nodes",
        {"metadata": {}},
        'nodes "Unknown" is forbidden: node "n1" is not allowed to modify node ""',
    ),
    "labels that are not its own, on creation": (
        "POST",
        "/api/v1/nodes",
        {"metadata": {"name": "n1", "labels": {"x.k8s.io/a": "b", "kubernetes.io/os": "linux"}}},
        'nodes "n1" is forbidden: node "n1" is not allowed to set the following labels: x.k8s.io/a',
    ),
    "labels that are not its own": (
        "PATCH",
        "/api/v1/nodes/n1",
        {"metadata": {"labels": {"kubernetes.io/z": "1", "a.k8s.io/y": "1", "mine": "1"}}},
        'nodes "n1" is forbidden: is not allowed to modify labels: a.k8s.io/y, kubernetes.io/z',
    ),
    "labels of the restricted domain": (
        "PATCH",
        "/api/v1/nodes/n1/status",
        {"metadata": {"labels": {"a.node-restriction.kubernetes.io/z": "1"}}},
        (
            'nodes "n1" is forbidden: is not allowed to modify labels: '
            "a.node-restriction.kubernetes.io/z"
        ),
    ),
    "its taints": (
        "PATCH",
        "/api/v1/nodes/n1",
        {"spec": {"taints": []}},
        'nodes "n1" is forbidden: node "n1" is not allowed to modify taints',
    ),
    "its taints through its status": (
        "PATCH",
        "/api/v1/nodes/n1/status",
        {"spec": {"taints": []}},
        'nodes "n1" is forbidden: node "n1" is not allowed to modify taints',
    ),
    "its owners": (
        "PATCH",
        "/api/v1/nodes/n1",
        {
            "metadata": {
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y"}]
            }
        },
        'nodes "n1" is forbidden: node "n1" is not allowed to modify ownerReferences',
    ),
    "the status of another node": (
        "PATCH",
        "/api/v1/nodes/n2/status",
        {"status": {"phase": "Running"}},
        'nodes "n2" is forbidden: node "n1" is not allowed to modify node "n2"',
    ),
    "another node's lease": (
        "POST",
        LEASES,
        {"metadata": {"name": "n2"}},
        (
            'leases.coordination.k8s.io "n2" is forbidden: can only access node lease with the '
            "same name as the requesting node"
        ),
    ),
    "the status of a pod on another node": (
        "PATCH",
        f"{PODS}/p2/status",
        {"status": {"message": "m"}},
        (
            'pods "p2" is forbidden: node "n1" can only update pod status for pods with '
            "spec.nodeName set to itself"
        ),
    ),
    "the status of a pod on no node": (
        "PATCH",
        f"{PODS}/p0/status",
        {"status": {"message": "m"}},
        (
            'pods "p0" is forbidden: node "n1" can only update pod status for pods with '
            "spec.nodeName set to itself"
        ),
    ),
    "a pod's labels through its status": (
        "PATCH",
        f"{PODS}/p1/status",
        {"metadata": {"labels": {"a": "b"}}},
        'pods "p1" is forbidden: node "n1" cannot update labels through pod status',
    ),
    "a pod itself": (
        "PATCH",
        f"{PODS}/p1",
        {"metadata": {"labels": {"a": "b"}}},
        (
            'pods "p1" is forbidden: User "system:node:n1" cannot patch resource "pods" in API '
            'group "" in the namespace "default"'
        ),
    ),
    "a new pod": (
        "POST",
        PODS,
        {"metadata": {"name": "new"}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        (
            'pods "new" is forbidden: pod does not have "kubernetes.io/config.mirror" annotation, '
            'node "n1" can only create mirror pods'
        ),
    ),
    "a delete of a pod on another node": (
        "DELETE",
        f"{PODS}/p2",
        {"gracePeriodSeconds": 0},
        'pods "p2" is forbidden: node "n1" can only delete pods with spec.nodeName set to itself',
    ),
    "a delete of its pod with grace": (
        "DELETE",
        f"{PODS}/p1",
        {"gracePeriodSeconds": 1},
        'pods "p1" is forbidden: node "n1" can only delete pods with gracePeriodSeconds set to 0',
    ),
    "a delete of its pod with the pod's own grace": (
        "DELETE",
        f"{PODS}/p1",
        None,
        'pods "p1" is forbidden: node "n1" can only delete pods with gracePeriodSeconds set to 0',
    ),
    "a delete of itself": (
        "DELETE",
        "/api/v1/nodes/n1",
        None,
        (
            'nodes "n1" is forbidden: User "system:node:n1" cannot delete resource "nodes" in API '
            'group "" at the cluster scope'
        ),
    ),
    "an eviction": (
        "POST",
        f"{PODS}/p1/eviction",
        {"metadata": {"name": "p1"}},
        (
            'pods "p1" is forbidden: User "system:node:n1" cannot create resource "pods/eviction" '
            'in API group "" in the namespace "default"'
        ),
    ),
}


@cases("method path body message", REFUSED_WRITES)
async def test_a_node_may_not_write(
    api: NodesApi, method: str, path: str, body: Any, message: str
) -> None:
    answer = await api.ask("n1", method, path, body, MERGE if method == "PATCH" else None)
    assert (answer.status, answer.body["reason"]) == (403, "Forbidden")
    assert answer.body["message"] == message


def mirror(owners: list[Any], node: str = "n1", **spec: Any) -> Any:
    """A mirror pod with these owners; each is a change of the claims of a node."""
    own = {"apiVersion": "v1", "kind": "Node", "name": "n1", "controller": True}
    metadata = {
        "name": "m",
        "annotations": {"kubernetes.io/config.mirror": "hash"},
        "ownerReferences": [{**own, **each} for each in owners],
    }
    container = {"name": "c", "image": "i", **spec.pop("container", {})}
    return {"metadata": metadata, "spec": {"nodeName": node, "containers": [container], **spec}}


def volume(**source: Any) -> Any:
    return {"volumes": [{"name": "v", **source}]}


REFUSED_MIRRORS: dict[str, tuple[Any, str]] = {
    # id, pod (None stands for the node's own uid), why
    "on another node": (mirror([{}], "n2"), "only create pods with spec.nodeName set to itself"),
    "without an owner": (mirror([]), "only create pods with an owner reference set to itself"),
    "of two owners": (
        mirror([{}, {"kind": "Pod", "controller": False}]),
        "only create pods with a single owner reference set to itself",
    ),
    "of another node": (
        mirror([{"name": "n2"}]),
        "only create pods with an owner reference set to itself",
    ),
    "of an owner that does not manage it": (
        mirror([{"controller": False}]),
        "only create pods with a controller owner reference set to itself",
    ),
    "that holds its owner": (
        mirror([{"blockOwnerDeletion": True}]),
        'node "n1" must not set blockOwnerDeletion on an owner reference',
    ),
    "of a node that was there before": (mirror([{"uid": "x"}]), "UID mismatch: expected x got"),
    "with an account": (
        mirror([{}], serviceAccountName="a"),
        "can not create pods that reference serviceaccounts",
    ),
    "with a secret": (
        mirror([{}], imagePullSecrets=[{"name": "s"}]),
        "can not create pods that reference secrets",
    ),
    "with a ConfigMap": (
        mirror([{}], container={"envFrom": [{"configMapRef": {"name": "m"}}]}),
        "can not create pods that reference configmaps",
    ),
    "with a claim": (
        mirror([{}], **volume(persistentVolumeClaim={"claimName": "c"})),
        "can not create pods that reference persistentvolumeclaims",
    ),
    "with a token": (
        mirror([{}], **volume(projected={"sources": [{"serviceAccountToken": {"path": "t"}}]})),
        "can not create pods that reference serviceaccounts (via projected volumes)",
    ),
    "with a driver": (
        mirror([{}], **volume(csi={"driver": "d"})),
        "can not create pods that reference csidrivers (via CSI volumes)",
    ),
}


async def owned(api: NodesApi, pod: Any) -> Any:
    """The pod, whose owners have the node's uid unless they have one of their own."""
    node = (await api.ask("n1", "GET", "/api/v1/nodes/n1")).body
    for owner in pod["metadata"]["ownerReferences"]:
        owner.setdefault("uid", node["metadata"]["uid"])
    return pod


@cases("pod why", REFUSED_MIRRORS)
async def test_a_node_may_not_create_a_mirror_pod(api: NodesApi, pod: Any, why: str) -> None:
    answer = await api.ask("n1", "POST", PODS, await owned(api, pod))
    assert (answer.status, answer.body["reason"]) == (403, "Forbidden")
    assert answer.body["message"].startswith('pods "m" is forbidden: ')
    assert why in answer.body["message"]


async def test_a_node_creates_and_deletes_a_mirror_pod_of_its_own(api: NodesApi) -> None:
    pod = mirror([{}], **volume(hostPath={"path": "/"}))
    creation = await api.ask("n1", "POST", PODS, await owned(api, pod))
    assert (creation.status, creation.body["spec"]["nodeName"]) == (201, "n1")
    deletion = await api.ask("n1", "DELETE", f"{PODS}/m", {"gracePeriodSeconds": 0})
    assert deletion.status == 200


ALLOWED_WRITES: dict[str, tuple[str, str, Any, int]] = {
    "labels of its own": (
        "PATCH",
        "/api/v1/nodes/n1",
        {"metadata": {"labels": {"kubernetes.io/os": "linux", "node.kubernetes.io/a": "b"}}},
        200,
    ),
    "labels of nobody's": (
        "PATCH",
        "/api/v1/nodes/n1",
        {"metadata": {"labels": {"kubernetes.io": "a", "notk8s.io/b": "c"}}},
        200,
    ),
    "its status": ("PATCH", "/api/v1/nodes/n1/status", {"status": {"phase": "Running"}}, 200),
    "its lease": ("POST", LEASES, {"metadata": {"name": "n1"}}, 201),
    "its pod's status": ("PATCH", f"{PODS}/p1/status", {"status": {"message": "m"}}, 200),
    "the end of its pod": ("DELETE", f"{PODS}/p1", {"gracePeriodSeconds": 0}, 200),
    "an event": (
        "POST",
        "/api/v1/namespaces/default/events",
        {
            "metadata": {"name": "e"},
            "involvedObject": {"kind": "Node", "name": "n1", "namespace": "default"},
        },
        201,
    ),
    "an unknown event": ("PATCH", "/api/v1/namespaces/default/events/e9", {"count": 2}, 404),
    "an unknown pod's status": ("PATCH", f"{PODS}/p9/status", {"status": {}}, 404),
    "the end of an unknown pod": ("DELETE", f"{PODS}/p9", {"gracePeriodSeconds": 0}, 404),
    "an unknown node": ("PATCH", "/api/v1/nodes/n9", {"metadata": {"labels": {"a": "b"}}}, 404),
    "itself once more": ("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}}, 409),
}


@cases("method path body status", ALLOWED_WRITES)
async def test_a_node_may_write(
    api: NodesApi, method: str, path: str, body: Any, status: int
) -> None:
    answer = await api.ask("n1", method, path, body, MERGE if method == "PATCH" else None)
    assert answer.status == status, answer.body


async def test_others_are_not_restricted_as_nodes_are(api: NodesApi) -> None:
    body = {"metadata": {"labels": {"x.k8s.io/a": "b"}}, "spec": {"taints": []}}
    assert (await api.ask("admin", "PATCH", "/api/v1/nodes/n1", body, MERGE)).status == 200
    assert (await api.ask("admin", "DELETE", f"{PODS}/p1")).status == 200


REFUSALS: list[tuple[str, str, str, str, dict[str, str]]] = [
    (
        "GET",
        "/api/v1/namespaces/default/pods/x",
        (
            'pods "x" is forbidden: User "system:anonymous" cannot get resource "pods" in API '
            'group "" in the namespace "default"'
        ),
        "an object",
        {"name": "x", "kind": "pods"},
    ),
    (
        "GET",
        "/apis/batch/v1/jobs",
        (
            'jobs.batch is forbidden: User "system:anonymous" cannot list resource "jobs" in API '
            'group "batch" at the cluster scope'
        ),
        "a collection",
        {"group": "batch", "kind": "jobs"},
    ),
    (
        "GET",
        "/apis/foo/v1/bars",
        (
            'bars.foo is forbidden: User "system:anonymous" cannot list resource "bars" in API '
            'group "foo" at the cluster scope'
        ),
        "what is not served",
        {"group": "foo", "kind": "bars"},
    ),
    (
        "GET",
        "/foo<&>",
        'forbidden: User "system:anonymous" cannot get path "/foo&lt;&amp;&gt;"',
        "an address",
        {},
    ),
    (
        "GET",
        "/api/v1//pods",
        (
            'forbidden: User "system:anonymous" cannot get resource "" in API group "" at the '
            "cluster scope"
        ),
        "a resource without a name",
        {"name": "pods"},
    ),
    (
        "PUT",
        "/api/v1/pods",
        (
            'pods is forbidden: User "system:anonymous" cannot update resource "pods" in API group '
            '"" at the cluster scope'
        ),
        "a method that is not allowed either",
        {"kind": "pods"},
    ),
]


@pytest.mark.parametrize(
    ("method", "path", "message", "details"),
    [(row[0], row[1], row[2], row[4]) for row in REFUSALS],
    ids=[row[3] for row in REFUSALS],
)
async def test_a_refusal_has_the_words_of_kubernetes(
    api: NodesApi, method: str, path: str, message: str, details: dict[str, str]
) -> None:
    answer = await api.ask("", method, path)
    assert answer.status == 403
    assert answer.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": "Forbidden",
        "details": details,
        "code": 403,
    }
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("path", ["/api/v1/secrets", "/api/v1/namespaces/default/secrets/x"])
async def test_the_reader_sees_no_secret(api: NodesApi, path: str) -> None:
    assert (await api.ask("readonly", "GET", path)).status == 403
    assert (await api.ask("readonly", "GET", path.replace("secrets", "configmaps"))).status != 403


async def test_the_reader_changes_nothing(api: NodesApi) -> None:
    answer = await api.ask("readonly", "DELETE", f"{PODS}/p1")
    assert (answer.status, answer.body["reason"]) == (403, "Forbidden")
