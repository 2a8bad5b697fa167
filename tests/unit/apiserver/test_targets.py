# SPDX-License-Identifier: Apache-2.0
"""Addresses and verbs; what is served where is as Kubernetes has it."""

import pytest

from refloat.apiserver import targets
from refloat.apiserver.targets import Target
from tests.refusals import refusal
from tests.worlds import CONFIG_MAPS, JOBS, NAMESPACES, NODES, PODS

NOT_ALLOWED = "the server does not allow this method on the requested resource"
ONE = "/api/v1/namespaces/d/pods/p"


@pytest.mark.parametrize(
    ("path", "want"),
    [
        pytest.param("/api/v1/pods", Target(PODS), id="everywhere"),
        pytest.param("/api/v1/namespaces/d/pods", Target(PODS, "d"), id="in a namespace"),
        pytest.param("/api/v1/namespaces/d/pods/", Target(PODS, "d"), id="with a slash behind"),
        pytest.param(ONE, Target(PODS, "d", "p"), id="one object"),
        pytest.param(f"{ONE}/status", Target(PODS, "d", "p", "status"), id="a part of it"),
        pytest.param("/api/v1/nodes/n", Target(NODES, "", "n"), id="outside of namespaces"),
        pytest.param("/api/v1/namespaces/d", Target(NAMESPACES, "", "d"), id="a namespace"),
        pytest.param(
            "/api/v1/namespaces/d/finalize",
            Target(NAMESPACES, "", "d", "finalize"),
            id="a part of a namespace",
        ),
        pytest.param(
            "/api/v1/namespaces/pods/pods/pods", Target(PODS, "pods", "pods"), id="odd names"
        ),
        pytest.param("/apis/batch/v1/jobs", Target(JOBS), id="of a group"),
        pytest.param(
            "/api/v1/watch/namespaces/d/pods/p",
            Target(PODS, "d", "p", legacy_watch=True),
            id="the older way to watch",
        ),
    ],
)
def test_address_names(path: str, want: Target) -> None:
    assert targets.parse(path) == want


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
    assert targets.parse(path) is None


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
    assert targets.verb(method, target, watch=watch) == want


@pytest.mark.parametrize(
    ("method", "target"),
    [
        pytest.param("POST", Target(PODS), id="a create everywhere"),
        pytest.param("DELETE", Target(PODS), id="a delete everywhere"),
        pytest.param("POST", Target(PODS, "d", "p"), id="a create of an object's own"),
        pytest.param("PUT", Target(PODS, "d"), id="an update of a collection"),
        pytest.param("PATCH", Target(PODS, "d"), id="a patch of a collection"),
        pytest.param("HEAD", Target(PODS, "d"), id="a head"),
        pytest.param("DELETE", Target(NAMESPACES), id="a delete of all namespaces"),
        pytest.param("DELETE", Target(PODS, "d", "p", "status"), id="a delete of a part"),
        pytest.param("GET", Target(PODS, "d", "p", "eviction"), id="a get of an eviction"),
        pytest.param("GET", Target(NAMESPACES, "", "d", "finalize"), id="a get of a finalize"),
        pytest.param("PUT", Target(CONFIG_MAPS, "d", "c", legacy_watch=True), id="an old update"),
        pytest.param("POST", Target(CONFIG_MAPS, "d", legacy_watch=True), id="an old create"),
    ],
)
def test_method_means_nothing(method: str, target: Target) -> None:
    with refusal(405, NOT_ALLOWED):
        targets.verb(method, target, watch=False)
