# SPDX-License-Identifier: Apache-2.0
"""The matrix: each identity, verb, kind, and own or foreign object.

What is allowed is listed; everything else in the whole product must be
refused. The rules on what is in a written object are in
`test_authorization_nodes`.
"""

import itertools
from collections.abc import Iterator

import pytest

from refloat.api import kinds
from refloat.apiserver import identity, roles
from refloat.apiserver.attributes import Attributes, of_path
from refloat.apiserver.authorization import Authorizer
from refloat.apiserver.identity import ANONYMOUS, Identity
from tests.unit.apiserver import cluster_of_nodes

VERBS = (*kinds.STANDARD_VERBS, "impersonate", "")
NODE = identity.node("n1")

# For each kind with an owner: the namespace, the own object and the foreign one.
OBJECTS = {
    "nodes": ("", "n1", "n2"),
    "leases": ("kube-node-lease", "n1", "n2"),
    "configmaps": ("default", "cm-p1", "cm-p2"),
    "secrets": ("default", "s-p1", "s-p2"),
    "persistentvolumeclaims": ("default", "pvc-p1", "pvc-p2"),
    "pods": ("default", "p1", "p2"),
    "serviceaccounts": ("default", "sa-p1", "sa-p2"),
}


@pytest.fixture
async def authorizer() -> Authorizer:
    return Authorizer(await cluster_of_nodes.filled())


def _whats() -> Iterator[tuple[kinds.Resource, str]]:
    """All kinds and their subresources."""
    for resource in (*kinds.RESOURCES, *kinds.VIRTUAL):
        for subresource in ("", *(each.name for each in resource.subresources)):
            yield resource, subresource


def _questions() -> Iterator[tuple[str, Attributes]]:
    """Every verb on every kind, on an own and on a foreign object, with the cell's name."""
    for (resource, subresource), verb in itertools.product(_whats(), VERBS):
        namespace, own, foreign = OBJECTS.get(resource.plural, ("default", "x", "x"))
        for whose, name in (("own", own), ("foreign", foreign)):
            attributes = Attributes(
                verb,
                group=resource.group,
                resource=resource.plural,
                subresource=subresource,
                namespace=namespace if resource.namespaced else "",
                name=name,
            )
            group = f".{resource.group}" if resource.group else ""
            yield f"{verb} {whose} {attributes.what}{group}", attributes


QUESTIONS = dict(_questions())


def _allowed(authorizer: Authorizer, user: Identity) -> set[str]:
    return {
        cell for cell, question in QUESTIONS.items() if authorizer.decide(user, question).allowed
    }


def _cells(whose: str, verbs: str, *whats: str) -> set[str]:
    return {
        f"{verb} {each} {what}"
        for verb, each, what in itertools.product(verbs.split(), whose.split(), whats)
    }


BOTH = "own foreign"

ABOUT_ONESELF = _cells(
    BOTH,
    "create",
    "selfsubjectreviews.authentication.k8s.io",
    "selfsubjectaccessreviews.authorization.k8s.io",
    "selfsubjectrulesreviews.authorization.k8s.io",
)
EVENTS = ("events", "events.events.k8s.io")


def test_an_administrator_may_do_everything(authorizer: Authorizer) -> None:
    assert _allowed(authorizer, identity.ADMIN) == set(QUESTIONS)


def test_nobody_may_do_anything_to_a_resource(authorizer: Authorizer) -> None:
    assert _allowed(authorizer, ANONYMOUS) == set()


def test_a_user_without_a_role_may_only_ask_about_itself(authorizer: Authorizer) -> None:
    user = Identity("somebody", (identity.AUTHENTICATED,))
    assert _allowed(authorizer, user) == ABOUT_ONESELF


def test_the_reader_reads_everything_but_secrets(authorizer: Authorizer) -> None:
    served = [
        f"{what}.{resource.group}" if resource.group else what
        for resource, subresource in _whats()
        if resource not in kinds.VIRTUAL and subresource in ("", "status", "log")
        for what in [f"{resource.plural}/{subresource}" if subresource else resource.plural]
    ]
    want = _cells(BOTH, "get list watch", *served) - _cells(BOTH, "get list watch", "secrets")
    assert _allowed(authorizer, identity.READ_ONLY) == want | ABOUT_ONESELF


def test_the_reader_runs_nothing_in_pods(authorizer: Authorizer) -> None:
    for subresource in ("exec", "attach", "portforward"):
        for verb in ("get", "create"):
            question = Attributes(verb, resource="pods", subresource=subresource, name="p1")
            assert not authorizer.decide(identity.READ_ONLY, question).allowed


def test_a_node_may_do_what_is_listed_and_nothing_else(authorizer: Authorizer) -> None:
    want = (
        ABOUT_ONESELF
        | _cells("own", "get list watch create update patch", "nodes")
        | _cells("own", "update patch", "nodes/status")
        | _cells("own", "get create update patch", "leases.coordination.k8s.io")
        | _cells("own", "get list watch create delete", "pods")
        | _cells("own", "update patch", "pods/status")
        | _cells("own", "get list watch", "configmaps", "secrets")
        | _cells("own", "get", "persistentvolumeclaims")
        | _cells(BOTH, "create update patch", *EVENTS)
    )
    # These are refused when the object is at hand: see `test_authorization_nodes`.
    later = (
        _cells("foreign", "create update patch", "nodes")
        | _cells("foreign", "update patch", "nodes/status")
        | _cells("foreign", "create", "leases.coordination.k8s.io")
        | _cells("foreign", "create delete", "pods")
        | _cells("foreign", "update patch", "pods/status")
    )
    assert _allowed(authorizer, NODE) == want | later


@pytest.mark.parametrize(
    "user",
    [
        Identity("system:node:n1", (identity.AUTHENTICATED,)),
        Identity("n1", (identity.NODES, identity.AUTHENTICATED)),
        Identity("system:node:", (identity.NODES, identity.AUTHENTICATED)),
    ],
    ids=["the name without the group", "the group without the name", "a node without a name"],
)
def test_half_a_node_is_none(authorizer: Authorizer, user: Identity) -> None:
    assert _allowed(authorizer, user) == ABOUT_ONESELF


def test_a_node_reads_nothing_of_a_pod_that_is_bound_to_none(authorizer: Authorizer) -> None:
    for resource, name in (("pods", "p0"), ("secrets", "s-p0"), ("configmaps", "cm-p0")):
        question = Attributes("get", resource=resource, namespace="default", name=name)
        assert not authorizer.decide(NODE, question).allowed


def test_a_name_in_a_pod_counts_in_its_namespace_only(authorizer: Authorizer) -> None:
    question = Attributes("get", resource="secrets", namespace="kube-system", name="s-p1")
    assert not authorizer.decide(NODE, question).allowed


CONTROLLERS = (*roles.CONTROLLERS, roles.SCHEDULER)


@pytest.mark.parametrize("name", CONTROLLERS)
def test_a_controller_has_the_rights_of_its_role(authorizer: Authorizer, name: str) -> None:
    user = roles.controller(name)
    allowed = _allowed(authorizer, user)
    assert allowed > ABOUT_ONESELF
    for cell in allowed:
        assert authorizer.decide(user, QUESTIONS[cell]).reason.startswith("RBAC: allowed by")


WRITES = ("create", "update", "patch", "delete", "deletecollection")

# What each controller may change, besides events; the two collectors of garbage aside.
CHANGES = {
    "attachdetach-controller": {"nodes/status", "volumeattachments", "volumeattachments/status"},
    "disruption-controller": {"poddisruptionbudgets/status", "pods/status"},
    "force-eviction-controller": {
        "nodes",
        "nodes/status",
        "pods",
        "pods/status",
        "volumeattachments",
    },
    "job-controller": {"jobs", "jobs/status", "pods"},
    "kube-scheduler": {"pods", "pods/binding", "pods/status"},
    "node-controller": {"nodes", "nodes/status", "pods", "pods/status"},
    "persistent-volume-binder": {
        "persistentvolumeclaims",
        "persistentvolumeclaims/status",
        "persistentvolumes",
        "persistentvolumes/status",
    },
    "pod-garbage-collector": {"pods", "pods/status"},
    "taint-eviction-controller": {"pods", "pods/status"},
    "ttl-after-finished-controller": {"jobs"},
    "zombie-controller": {"nodes", "pods", "pods/status"},
}


@pytest.mark.parametrize("name", CHANGES)
def test_controller_changes_its_own_kinds_and_no_others(authorizer: Authorizer, name: str) -> None:
    user = roles.controller(name)
    changed = {
        question.what
        for question in QUESTIONS.values()
        if question.verb in WRITES and authorizer.decide(user, question).allowed
    }
    about_oneself = {resource.plural for resource in kinds.VIRTUAL}
    assert changed - about_oneself - {"events"} == CHANGES[name]


@pytest.mark.parametrize("name", CONTROLLERS)
def test_no_controller_acts_as_others(authorizer: Authorizer, name: str) -> None:
    question = Attributes("impersonate", resource="users", name="kubernetes-admin")
    assert not authorizer.decide(roles.controller(name), question).allowed


def test_there_is_no_identity_for_an_unknown_controller() -> None:
    with pytest.raises(KeyError):
        roles.controller("no-such-controller")


OPEN = ("/healthz", "/livez", "/readyz", "/version", "/version/")
DISCOVERY = ("/api", "/api/v1", "/apis", "/apis/batch/v1", "/openapi/v3", "/openapi/v3/api/v1")
CLOSED = ("/", "/metrics", "/livez/ping", "/healthz/", "/foo", "/openapi-x", "/apix")


@pytest.mark.parametrize(
    ("user", "want"),
    [
        (ANONYMOUS, OPEN),
        (Identity("somebody", (identity.AUTHENTICATED,)), OPEN + DISCOVERY),
        (NODE, OPEN + DISCOVERY),
        (identity.READ_ONLY, OPEN + DISCOVERY + CLOSED),
        (identity.ADMIN, OPEN + DISCOVERY + CLOSED),
    ],
    ids=["nobody", "somebody", "node", "reader", "administrator"],
)
def test_addresses_that_are_no_resources(
    authorizer: Authorizer, user: Identity, want: tuple[str, ...]
) -> None:
    paths = OPEN + DISCOVERY + CLOSED
    allowed = [path for path in paths if authorizer.decide(user, of_path("get", path)).allowed]
    assert tuple(allowed) == want


@pytest.mark.parametrize("user", [ANONYMOUS, NODE, identity.READ_ONLY], ids=lambda user: user.name)
def test_nothing_is_written_to_an_address(authorizer: Authorizer, user: Identity) -> None:
    for path in OPEN + DISCOVERY + CLOSED:
        assert not authorizer.decide(user, of_path("post", path)).allowed
