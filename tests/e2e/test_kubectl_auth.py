# SPDX-License-Identifier: Apache-2.0
"""kubectl asks for the user name and the rights, and impersonates.

The users here are unknown to every cluster, so the answers hold on any cluster.
"""

import pytest

from tests.e2e.cluster import Kubectl

JOBS = "system:serviceaccount:kube-system:job-controller"


def test_whoami_tells_the_administrator(kubectl: Kubectl) -> None:
    user = kubectl.object("auth", "whoami")["status"]["userInfo"]
    assert "system:masters" in user["groups"]
    assert "system:authenticated" in user["groups"]


def test_whoami_as_another(kubectl: Kubectl) -> None:
    review = kubectl.object("auth", "whoami", "--as=bob", "--as-group=people", "--as-uid=7")
    assert review["status"]["userInfo"] == {
        "username": "bob",
        "uid": "7",
        "groups": ["people", "system:authenticated"],
    }


@pytest.mark.parametrize(
    ("args", "want"),
    [
        (("create", "pods"), "yes"),
        (("*", "*"), "yes"),
        (("get", "/metrics"), "yes"),
        (("create", "pods", "--as=bob"), "no"),
        (("get", "/healthz", "--as=bob"), "yes"),
        (("get", "/metrics", "--as=bob"), "no"),
        (("create", "pods", f"--as={JOBS}"), "yes"),
        (("get", "secrets", f"--as={JOBS}"), "no"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_can_i(kubectl: Kubectl, args: tuple[str, ...], want: str) -> None:
    done = kubectl.run("auth", "can-i", *args)
    assert done.stdout.split()[0] == want, done.stderr
    assert done.returncode == (0 if want == "yes" else 1)


def test_can_i_list_shows_the_rules(kubectl: Kubectl) -> None:
    lines = [line.split() for line in kubectl("auth", "can-i", "--list").splitlines()]
    assert ["*.*", "[]", "[]", "[*]"] in lines
    assert ["selfsubjectreviews.authentication.k8s.io", "[]", "[]", "[create]"] in lines


def test_can_i_list_says_that_a_nodes_rules_are_not_all(kubectl: Kubectl) -> None:
    done = kubectl.run("auth", "can-i", "--list", "--as=system:node:x", "--as-group=system:nodes")
    assert "node authorizer does not support user rule resolution" in done.stderr


def test_another_may_do_what_another_may_do(kubectl: Kubectl) -> None:
    error = kubectl.refused("get", "pods", "--as=bob")
    assert (
        'Error from server (Forbidden): pods is forbidden: User "bob" cannot list resource "pods" '
        f'in API group "" in the namespace "{kubectl.namespace}"'
    ) in error
