# SPDX-License-Identifier: Apache-2.0
"""Reading a request, matching a rule, and the index of what pods name."""

import pytest

from refloat.api import kinds
from refloat.apiserver import ApiServer, attributes, identity
from refloat.apiserver.attributes import Attributes, of_path
from refloat.apiserver.deletion import Options
from refloat.apiserver.identity import Call
from refloat.apiserver.node_graph import NodeGraph
from refloat.apiserver.registry import Registry
from refloat.apiserver.roles import Rule
from refloat.apiserver.routes import Target
from refloat.base.clock import RealClock
from refloat.base.gates import Gates
from refloat.base.rand import Rand
from tests.unit.apiserver import cluster_of_nodes

REQUESTS: list[tuple[str, str, dict[str, str], tuple[str, str, str, str, str]]] = [
    # method, path, query -> verb, group, what, namespace, name
    ("GET", "/api/v1/pods", {}, ("list", "", "pods", "", "")),
    ("HEAD", "/api/v1/pods", {}, ("list", "", "pods", "", "")),
    ("GET", "/api/v1/pods", {"watch": "1"}, ("watch", "", "pods", "", "")),
    ("GET", "/api/v1/pods", {"watch": ""}, ("watch", "", "pods", "", "")),
    ("GET", "/api/v1/pods", {"watch": "false"}, ("list", "", "pods", "", "")),
    ("PUT", "/api/v1/pods", {}, ("update", "", "pods", "", "")),
    ("POST", "/api/v1/pods/x", {}, ("create", "", "pods", "", "x")),
    ("DELETE", "/api/v1/pods", {}, ("deletecollection", "", "pods", "", "")),
    ("OPTIONS", "/api/v1/pods", {}, ("", "", "pods", "", "")),
    ("GET", "/apis/batch/v1/namespaces/x/jobs/j", {}, ("get", "batch", "jobs", "x", "j")),
    ("PATCH", "/api/v1/namespaces/x/pods/p/status", {}, ("patch", "", "pods/status", "x", "p")),
    ("GET", "/api/v1/namespaces/x", {}, ("get", "", "namespaces", "x", "x")),
    ("GET", "/api/v1/namespaces/x/status", {}, ("get", "", "namespaces/status", "x", "x")),
    ("PUT", "/api/v1/namespaces/x/finalize", {}, ("update", "", "namespaces/finalize", "x", "x")),
    ("GET", "/api/v1/namespaces//pods", {}, ("list", "", "pods", "", "")),
    ("GET", "/api/v1/namespaces/x/pods/a/b/c/d", {}, ("get", "", "pods/b", "x", "a")),
    ("GET", "/api/v1//pods", {}, ("get", "", "", "", "pods")),
    ("GET", "/api/v1/watch/pods", {}, ("watch", "", "pods", "", "")),
    ("GET", "/api/v1/watch/namespaces/x/pods/p", {}, ("watch", "", "pods", "x", "p")),
    ("GET", "/api/v1/proxy/namespaces/x/pods/p/y", {}, ("proxy", "", "pods", "x", "p")),
    ("GET", "/apis/foo/v1/bars", {}, ("list", "foo", "bars", "", "")),
]


@pytest.mark.parametrize(
    ("method", "path", "query", "want"),
    REQUESTS,
    ids=[f"{method} {path}" for method, path, _, _ in REQUESTS],
)
def test_a_request_is_read_from_its_address(
    method: str, path: str, query: dict[str, str], want: tuple[str, str, str, str, str]
) -> None:
    request = attributes.of_request(method, path, query)
    assert request.is_resource
    assert (request.verb, request.group, request.what, request.namespace, request.name) == want


@pytest.mark.parametrize(
    "path", ["/", "/api", "/api/v1", "/apis/batch/v1", "/apis/batch", "/x/y/z"]
)
def test_other_addresses_are_no_resources(path: str) -> None:
    assert attributes.of_request("POST", path, {}) == of_path("post", path)


@pytest.mark.parametrize(
    ("query", "want"),
    [
        ({"fieldSelector": "metadata.name=p"}, "p"),
        ({"fieldSelector": "spec.nodeName=n,metadata.name=p"}, "p"),
        ({"fieldSelector": "metadata.name!=p"}, ""),
        ({"fieldSelector": "metadata.name=a/b"}, ""),
        ({"fieldSelector": "metadata.name=.."}, ""),
        ({"fieldSelector": "unreadable("}, ""),
        ({"fieldSelector": "metadata.name=p", "limit": "x"}, ""),
        ({"fieldSelector": "metadata.name=p", "limit": "1"}, "p"),
    ],
)
def test_a_list_that_is_pinned_to_a_name_is_about_that_object(
    query: dict[str, str], want: str
) -> None:
    assert attributes.of_request("GET", "/api/v1/pods", query).name == want


def test_the_name_in_a_selector_does_not_narrow_what_is_deleted() -> None:
    request = attributes.of_request("DELETE", "/api/v1/pods", {"fieldSelector": "metadata.name=p"})
    assert (request.verb, request.name) == ("deletecollection", "")


def test_the_old_watch_address_has_no_selector() -> None:
    query = {"fieldSelector": "spec.nodeName=n1"}
    assert attributes.of_request("GET", "/api/v1/watch/pods", query).fields.empty
    assert not attributes.of_request("GET", "/api/v1/pods", query).fields.empty


RULES: list[tuple[Rule, Attributes, bool]] = [
    (Rule(("get",), ("",), ("pods",)), Attributes("get", resource="pods"), True),
    (Rule(("get",), ("",), ("pods",)), Attributes("list", resource="pods"), False),
    (Rule(("get",), ("",), ("pods",)), Attributes("get", group="x", resource="pods"), False),
    (Rule(("*",), ("*",), ("*",)), Attributes("x", group="y", resource="z"), True),
    (Rule(("*",), ("*",), ("*",)), of_path("get", "/x"), False),
    (
        Rule(("get",), ("",), ("pods",)),
        Attributes("get", resource="pods", subresource="log"),
        False,
    ),
    (
        Rule(("get",), ("",), ("*/log",)),
        Attributes("get", resource="pods", subresource="log"),
        True,
    ),
    (Rule(("get",), ("",), ("*/log",)), Attributes("get", resource="pods"), False),
    (Rule(("get",), ("",), ("pods",), ("a",)), Attributes("get", resource="pods", name="a"), True),
    (Rule(("get",), ("",), ("pods",), ("a",)), Attributes("get", resource="pods", name="b"), False),
    (Rule(("list",), ("",), ("pods",), ("a",)), Attributes("list", resource="pods"), False),
    (Rule(("get",), paths=("/a/*",)), of_path("get", "/a/b"), True),
    (Rule(("get",), paths=("/a/*",)), of_path("get", "/a"), False),
    (Rule(("get",), paths=("/a",)), of_path("get", "/a/"), False),
    (Rule(("get",), paths=("*",)), of_path("post", "/a"), False),
]


@pytest.mark.parametrize(("rule", "question", "want"), RULES)
def test_a_rule_matches_as_in_kubernetes(rule: Rule, question: Attributes, want: bool) -> None:
    assert rule.allows(question) is want


NAMED = [
    ("configmaps", ("cm", "from", "env", "from-init", "env-init", "projected")),
    (
        "secrets",
        (
            "s",
            "from",
            "env",
            "from-init",
            "env-init",
            "projected",
            "pull",
            "csi",
            "azure",
            "volume",
        ),
    ),
    ("persistentvolumeclaims", ("pvc",)),
]


@pytest.mark.parametrize(
    ("plural", "prefix"), [(plural, prefix) for plural, names in NAMED for prefix in names]
)
async def test_every_way_to_name_an_object_counts(plural: str, prefix: str) -> None:
    relations = NodeGraph(await cluster_of_nodes.filled())
    assert relations.is_named("n1", plural, "default", f"{prefix}-p1")
    assert not relations.is_named("n1", plural, "default", f"{prefix}-p2")


async def test_the_claim_of_an_ephemeral_volume_is_named() -> None:
    relations = NodeGraph(await cluster_of_nodes.filled())
    assert relations.is_named("n1", "persistentvolumeclaims", "default", "p1-ephemeral")


async def test_the_index_follows_pods_that_come_and_go() -> None:
    store = await cluster_of_nodes.filled()
    relations = NodeGraph(store)
    assert not relations.is_named("n1", "secrets", "default", "s-p3")
    await cluster_of_nodes.create_pod(store, cluster_of_nodes.pod("p3", "n1"))
    assert relations.is_named("n1", "secrets", "default", "s-p3")
    await _delete(ApiServer(store, RealClock(), Rand(), Gates()).registry, "p3")
    assert not relations.is_named("n1", "secrets", "default", "s-p3")
    assert relations.is_named("n1", "secrets", "default", "s-p1")


async def test_the_index_begins_anew_when_the_log_is_compacted() -> None:
    store = await cluster_of_nodes.filled()
    relations = NodeGraph(store)
    assert relations.is_named("n1", "secrets", "default", "s-p1")
    await cluster_of_nodes.create_pod(store, cluster_of_nodes.pod("p3", "n1"))
    await cluster_of_nodes.create_pod(store, cluster_of_nodes.pod("p4", "n1"))
    await store.compact(store.revision)
    assert relations.is_named("n1", "secrets", "default", "s-p3")
    assert relations.is_named("n1", "secrets", "default", "s-p1")


async def _delete(registry: Registry, name: str) -> None:
    call = Call(identity.ADMIN, RealClock().now())
    _, deleted = await registry.delete(call, Target(kinds.of("pods"), "default", name), Options(0))
    assert deleted
