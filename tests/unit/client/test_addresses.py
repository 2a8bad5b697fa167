# SPDX-License-Identifier: Apache-2.0
"""The addresses of resources, and the proxies on the way to them."""

import pytest

from refloat.api import kinds
from refloat.client import errors, paths, proxies
from tests.cases import cases

PODS = kinds.of("pods")
NODES = kinds.of("nodes")
JOBS = kinds.of("jobs", "batch")
WIDGETS = kinds.Resource("example.com", "v1beta2", "widgets", "Widget", namespaced=True)


@pytest.mark.parametrize(
    ("resource", "namespace", "want"),
    [
        (PODS, "", "/api/v1/pods"),
        (PODS, "n", "/api/v1/namespaces/n/pods"),
        (NODES, "", "/api/v1/nodes"),
        (JOBS, "n", "/apis/batch/v1/namespaces/n/jobs"),
        (WIDGETS, "n", "/apis/example.com/v1beta2/namespaces/n/widgets"),
    ],
)
def test_a_collection_follows_from_group_version_and_plural(
    resource: kinds.Resource, namespace: str, want: str
) -> None:
    assert paths.collection(resource, namespace) == want


def test_one_object_and_its_parts() -> None:
    assert paths.one(NODES, "", "a") == "/api/v1/nodes/a"
    assert paths.one(PODS, "n", "a", "status") == "/api/v1/namespaces/n/pods/a/status"
    assert paths.one(NODES, "", "system:x é") == "/api/v1/nodes/system:x%20%C3%A9"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a%2Fb"])
def test_a_name_that_would_be_another_address_never_leaves(name: str) -> None:
    with pytest.raises(errors.Invalid, match="cannot stand in an address"):
        paths.one(NODES, "", name)


def test_one_object_of_a_namespaced_kind_needs_a_namespace() -> None:
    with pytest.raises(errors.Invalid, match="pods are in a namespace; none was given"):
        paths.one(PODS, "", "a")


def test_a_kind_without_namespaces_refuses_one() -> None:
    with pytest.raises(errors.Invalid, match="nodes are in no namespace; got 'n'"):
        paths.collection(NODES, "n")


PROXIED = {"HTTPS_PROXY": "http://p:1", "http_proxy": "q:2"}


@cases(
    "server environ want",
    {
        "none": ("https://h", {}, ""),
        "by scheme: https": ("https://h", PROXIED, "http://p:1"),
        "by scheme: http, lower case, bare": ("http://h", PROXIED, "http://q:2"),
        "CGI": ("http://h", PROXIED | {"REQUEST_METHOD": "GET"}, ""),
        "localhost": ("https://localhost:1", PROXIED, ""),
        "loopback": ("https://127.0.0.5:1", PROXIED, ""),
        "loopback of version 6": ("https://[::1]:1", PROXIED, ""),
        "all": ("https://h", PROXIED | {"NO_PROXY": "*"}, ""),
        "a name": ("https://h", PROXIED | {"NO_PROXY": "g, H"}, ""),
        "below a name": ("https://a.h", PROXIED | {"NO_PROXY": "h"}, ""),
        "not below": ("https://ah", PROXIED | {"NO_PROXY": "h"}, "http://p:1"),
        "only below": ("https://h", PROXIED | {"NO_PROXY": ".h"}, "http://p:1"),
        "star and dot": ("https://a.h", PROXIED | {"no_proxy": "*.h"}, ""),
        "a port": ("https://h:8", PROXIED | {"NO_PROXY": "h:8"}, ""),
        "another port": ("https://h:8", PROXIED | {"NO_PROXY": "h:9"}, "http://p:1"),
        "the default port": ("https://h", PROXIED | {"NO_PROXY": "h:443"}, ""),
        "a network": ("https://10.1.2.3", PROXIED | {"NO_PROXY": "10.0.0.0/8"}, ""),
        "an address": ("https://10.1.2.3", PROXIED | {"NO_PROXY": "10.1.2.3"}, ""),
        "no name": ("https://10.1.2.3", PROXIED | {"NO_PROXY": "2.3"}, "http://p:1"),
        "nonsense": ("https://h", PROXIED | {"NO_PROXY": "1.2.3.4/99"}, "http://p:1"),
    },
)
def test_the_environments_proxy(server: str, environ: dict[str, str], want: str) -> None:
    assert proxies.from_environment(server, environ) == want
