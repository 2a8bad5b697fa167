# SPDX-License-Identifier: Apache-2.0
"""Addresses and verbs; the same as in Kubernetes."""

import pytest

from refloat.apiserver import routes
from refloat.apiserver.routes import Target
from tests.apiserver_fixture import CONFIG_MAPS, JOBS, NAMESPACES, NODES, PODS
from tests.cases import cases
from tests.refusals import refusal

NOT_ALLOWED = "the server does not allow this method on the requested resource"
ONE = "/api/v1/namespaces/d/pods/p"


@cases(
    "path want",
    {
        "everywhere": ("/api/v1/pods", Target(PODS)),
        "in a namespace": ("/api/v1/namespaces/d/pods", Target(PODS, "d")),
        "with a slash behind": ("/api/v1/namespaces/d/pods/", Target(PODS, "d")),
        "one object": (ONE, Target(PODS, "d", "p")),
        "a part of it": (f"{ONE}/status", Target(PODS, "d", "p", "status")),
        "outside of namespaces": ("/api/v1/nodes/n", Target(NODES, "", "n")),
        "a namespace": ("/api/v1/namespaces/d", Target(NAMESPACES, "", "d")),
        "a part of a namespace": (
            "/api/v1/namespaces/d/finalize",
            Target(NAMESPACES, "", "d", "finalize"),
        ),
        "odd names": ("/api/v1/namespaces/pods/pods/pods", Target(PODS, "pods", "pods")),
        "of a group": ("/apis/batch/v1/jobs", Target(JOBS)),
        "the older way to watch": (
            "/api/v1/watch/namespaces/d/pods/p",
            Target(PODS, "d", "p", legacy_watch=True),
        ),
    },
)
def test_address_names(path: str, want: Target) -> None:
    assert routes.parse(path) == want


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/api",
        "/api/v1",
        "/api/v2/pods",
        "/api/v1/foo",
        "/api/v1/watch",
        "/api/v1/pods/p",
        "/api/v1/namespaces/d/foo",
        "/api/v1/namespaces/d/nodes",
        "/api/v1/namespaces/d/nodes/n",
        f"{ONE}/foo",
        f"{ONE}/status/more",
        "/api/v1/namespaces/d/configmaps/c/status",
        "//api/v1/nodes",
        "/api//v1/nodes",
        "/apis/batch/v2/jobs",
        "/apis/foo/v1/bars",
        "/healthz",
    ],
)
def test_address_is_none_of_a_resource(path: str) -> None:
    assert routes.parse(path) is None


@pytest.mark.parametrize(
    ("method", "target", "watch", "want"),
    [
        ("GET", Target(PODS), False, "list"),
        ("GET", Target(PODS), True, "watch"),
        ("GET", Target(PODS, legacy_watch=True), False, "watch"),
        ("GET", Target(PODS, "d", "p", legacy_watch=True), False, "watch"),
        ("GET", Target(PODS, "d", "p"), True, "get"),
        ("POST", Target(PODS, "d"), False, "create"),
        ("POST", Target(NODES), False, "create"),
        ("DELETE", Target(PODS, "d"), False, "deletecollection"),
        ("DELETE", Target(NODES), False, "deletecollection"),
        ("PUT", Target(PODS, "d", "p"), False, "update"),
        ("PATCH", Target(PODS, "d", "p"), False, "patch"),
        ("DELETE", Target(PODS, "d", "p"), False, "delete"),
        ("PUT", Target(PODS, "d", "p", "status"), False, "update"),
        ("POST", Target(PODS, "d", "p", "eviction"), False, "create"),
        ("PUT", Target(NAMESPACES, "", "d", "finalize"), False, "update"),
    ],
)
def test_method_means(method: str, target: Target, watch: bool, want: str) -> None:
    assert routes.verb(method, target, watch=watch) == want


@cases(
    "method target",
    {
        "a create everywhere": ("POST", Target(PODS)),
        "a delete everywhere": ("DELETE", Target(PODS)),
        "a create of an object's own": ("POST", Target(PODS, "d", "p")),
        "an update of a collection": ("PUT", Target(PODS, "d")),
        "a patch of a collection": ("PATCH", Target(PODS, "d")),
        "a head": ("HEAD", Target(PODS, "d")),
        "a delete of all namespaces": ("DELETE", Target(NAMESPACES)),
        "a delete of a part": ("DELETE", Target(PODS, "d", "p", "status")),
        "a get of an eviction": ("GET", Target(PODS, "d", "p", "eviction")),
        "a get of a finalize": ("GET", Target(NAMESPACES, "", "d", "finalize")),
        "an old update": ("PUT", Target(CONFIG_MAPS, "d", "c", legacy_watch=True)),
        "an old create": ("POST", Target(CONFIG_MAPS, "d", legacy_watch=True)),
    },
)
def test_method_means_nothing(method: str, target: Target) -> None:
    with refusal(405, NOT_ALLOWED):
        routes.verb(method, target, watch=False)
