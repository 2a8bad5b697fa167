# SPDX-License-Identifier: Apache-2.0
"""Tokens, anonymous users, and impersonation."""

import pytest

from refloat.api import errors
from refloat.apiserver import identity
from refloat.apiserver.authentication import SPACED, Tokens, digest
from refloat.apiserver.identity import ANONYMOUS, Identity
from tests.unit.apiserver.cluster_of_nodes import NodesApi

ME = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

USER = Identity("somebody", ("people",), "7")


@pytest.mark.parametrize(
    "header",
    ["Bearer right", "bearer right", "BEARER right", " Bearer right ", "Bearer right and more"],
)
def test_a_known_token_is_its_user(header: str) -> None:
    user = Tokens({"right": USER}).authenticate(header)
    assert user == Identity("somebody", ("people", identity.AUTHENTICATED), "7")


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "Basic YTpi", "right", "Bearer\tright", "Bearer  right"],
)
def test_no_token_is_nobody(header: str | None) -> None:
    assert Tokens({"right": USER}).authenticate(header) is ANONYMOUS


@pytest.mark.parametrize("header", ["Bearer wrong", "Bearer rightx", "Bearer é", "Bearer \udcff"])
def test_a_wrong_token_is_refused(header: str) -> None:
    with pytest.raises(errors.StatusError) as error:
        Tokens({"right": USER}).authenticate(header)
    assert (error.value.code, error.value.message) == (401, "Unauthorized")


def test_a_token_is_accepted_once_it_is_added() -> None:
    tokens = Tokens()
    with pytest.raises(errors.StatusError):
        tokens.authenticate("Bearer new")
    tokens.add("new", USER)
    assert tokens.authenticate("Bearer new").name == "somebody"


def test_an_unknown_token_is_asked_for_once() -> None:
    requests: list[bytes] = []

    def more(hashed: bytes) -> Identity | None:
        requests.append(hashed)
        return USER if hashed == digest("late") else None

    tokens = Tokens(more=more)
    for _ in range(3):
        assert tokens.authenticate("Bearer late").name == "somebody"
    assert requests == [digest("late")]


async def test_401_is_as_kubernetes_writes_it(api: NodesApi) -> None:
    answer = await api.ask("wrong", "GET", "/healthz")
    assert answer.status == 401
    assert answer.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "Unauthorized",
        "reason": "Unauthorized",
        "code": 401,
    }
    assert "WWW-Authenticate" not in answer.headers


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/version"])
async def test_nobody_gets_health_and_version(api: NodesApi, path: str) -> None:
    assert (await api.ask("", "GET", path)).status == 200


@pytest.mark.parametrize("path", ["/", "/api", "/apis", "/metrics", "/openapi/v3", "/livez/ping"])
async def test_nobody_gets_nothing_else(api: NodesApi, path: str) -> None:
    answer = await api.ask("", "GET", path)
    assert answer.status == 403
    message = f'forbidden: User "system:anonymous" cannot get path "{path}"'
    assert answer.body["message"] == message


async def test_a_token_behind_two_spaces_is_passed_over_with_a_warning(api: NodesApi) -> None:
    headers = {"Authorization": "Bearer  admin"}
    answer = await api.ask("", "GET", "/api/v1/pods", headers=headers)
    assert answer.status == 403
    assert answer.headers["Warning"] == f'299 - "{SPACED}"'


Headers = list[tuple[str, str]]


def _as(user: str, *groups: str, **more: str) -> Headers:
    others = [(f"Impersonate-{name.replace('_', '-')}", value) for name, value in more.items()]
    return [("Impersonate-User", user), *(("Impersonate-Group", each) for each in groups), *others]


AUTH = "system:authenticated"
ACCOUNT = "system:serviceaccount:kube-system:a"

BECOMES: list[tuple[Headers, dict[str, object]]] = [
    (_as("bob"), {"username": "bob", "groups": [AUTH]}),
    (_as("bob", "g1", "g2"), {"username": "bob", "groups": ["g1", "g2", AUTH]}),
    (_as("bob", AUTH), {"username": "bob", "groups": [AUTH]}),
    (_as("bob", Uid="7"), {"username": "bob", "uid": "7", "groups": [AUTH]}),
    (
        _as("bob", Extra_Foo="a", **{"Extra_acme%2Ecom%2Fx": "c"}),
        {"username": "bob", "groups": [AUTH], "extra": {"acme.com/x": ["c"], "foo": ["a"]}},
    ),
    (
        _as(ACCOUNT),
        {
            "username": ACCOUNT,
            "groups": ["system:serviceaccounts", "system:serviceaccounts:kube-system", AUTH],
        },
    ),
    (_as(ACCOUNT, "g"), {"username": ACCOUNT, "groups": ["g", AUTH]}),
    (_as("system:serviceaccount:bad"), {"username": "system:serviceaccount:bad", "groups": [AUTH]}),
    (
        [("Impersonate-User", "")],
        {"username": "kubernetes-admin", "groups": ["system:masters", AUTH]},
    ),
]


@pytest.mark.parametrize(("headers", "want"), BECOMES)
async def test_an_administrator_acts_as_others(
    api: NodesApi, headers: Headers, want: dict[str, object]
) -> None:
    answer = await api.ask("admin", "POST", ME, {}, headers)
    assert answer.status == 201
    assert answer.body["status"]["userInfo"] == want


@pytest.mark.parametrize("headers", [_as("system:anonymous"), _as("bob", "system:unauthenticated")])
async def test_an_administrator_acts_as_nobody(api: NodesApi, headers: Headers) -> None:
    assert (await api.ask("admin", "POST", ME, {}, headers)).status == 403
    assert (await api.ask("admin", "GET", "/version", headers=headers)).status == 200


async def test_the_rights_are_those_of_the_other(api: NodesApi) -> None:
    secret = "/api/v1/namespaces/default/secrets/s-p2"
    headers = _as("system:node:n1", "system:nodes")
    assert (await api.ask("admin", "GET", secret)).status == 404
    assert (await api.ask("admin", "GET", secret, headers=headers)).status == 403


NOT_ALLOWED: list[tuple[str, Headers, str]] = [
    (
        "nobody",
        _as("bob", "system:masters"),
        (
            'pods is forbidden: User "nobody" cannot impersonate-on:user-info:list resource "pods" '
            'in API group "" at the cluster scope'
        ),
    ),
    (
        "nobody",
        _as("nobody"),
        (
            'pods is forbidden: User "nobody" cannot impersonate-on:user-info:list resource "pods" '
            'in API group "" at the cluster scope'
        ),
    ),
    (
        "readonly",
        _as(ACCOUNT),
        (
            'pods is forbidden: User "refloat:readonly" cannot impersonate-on:serviceaccount:list '
            'resource "pods" in API group "" at the cluster scope'
        ),
    ),
    (
        "n1",
        _as("system:node:n2"),
        (
            'pods is forbidden: User "system:node:n1" cannot impersonate-on:arbitrary-node:list '
            'resource "pods" in API group "" at the cluster scope'
        ),
    ),
    (
        "",
        _as("system:node:n1", "system:nodes"),
        (
            'users "system:node:n1" is forbidden: User "system:anonymous" cannot impersonate '
            'resource "users" in API group "" at the cluster scope'
        ),
    ),
    (
        "n1",
        _as(ACCOUNT, "g"),
        (
            'serviceaccounts "a" is forbidden: User "system:node:n1" cannot impersonate resource '
            '"serviceaccounts" in API group "" in the namespace "kube-system": can only create '
            "tokens for individual service accounts"
        ),
    ),
]


@pytest.mark.parametrize(("user", "headers", "message"), NOT_ALLOWED)
async def test_nobody_else_acts_as_others(
    api: NodesApi, user: str, headers: Headers, message: str
) -> None:
    answer = await api.ask(user, "GET", "/api/v1/pods", headers=headers)
    assert (answer.status, answer.body["message"]) == (403, message)


@pytest.mark.parametrize(
    ("headers", "user_info"),
    [
        (
            [("Impersonate-Group", "g1"), ("Impersonate-Group", "g2")],
            'UID:"", Groups:[]string{"g1", "g2"}, Extra:map[string][]string(nil)',
        ),
        (
            [("Impersonate-Uid", "1")],
            'UID:"1", Groups:[]string(nil), Extra:map[string][]string(nil)',
        ),
        (
            [("Impersonate-Extra-x", "1"), ("Impersonate-Extra-A", "2")],
            (
                'UID:"", Groups:[]string(nil), '
                'Extra:map[string][]string{"a":[]string{"2"}, "x":[]string{"1"}}'
            ),
        ),
    ],
    ids=["groups", "uid", "extra"],
)
async def test_a_wish_without_a_user_is_refused(
    api: NodesApi, headers: Headers, user_info: str
) -> None:
    answer = await api.ask("admin", "GET", "/api/v1/pods", headers=headers)
    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")
    want = f'requested &user.DefaultInfo{{Name:"", {user_info}}} without impersonating a user name'
    assert answer.body["message"] == want


async def test_a_wrong_token_comes_before_the_wish(api: NodesApi) -> None:
    assert (await api.ask("wrong", "GET", "/version", headers=_as("bob"))).status == 401
