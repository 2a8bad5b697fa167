# SPDX-License-Identifier: Apache-2.0
"""Reviews of oneself, as a real server answers them."""

from typing import Any

import pytest

from tests.cases import cases
from tests.unit.apiserver.cluster_of_nodes import NodesApi

WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ACCESS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
RULES = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"

Object = dict[str, Any]


async def test_who_am_i(api: NodesApi) -> None:
    answer = await api.ask("n1", "POST", WHO, {"metadata": {"name": "x", "labels": {"a": "b"}}})
    assert answer.status == 201
    assert answer.body.pop("metadata").keys() == {"creationTimestamp"}
    assert answer.body == {
        "kind": "SelfSubjectReview",
        "apiVersion": "authentication.k8s.io/v1",
        "status": {
            "userInfo": {
                "username": "system:node:n1",
                "groups": ["system:nodes", "system:authenticated"],
            }
        },
    }


@pytest.mark.parametrize("path", [WHO, ACCESS, RULES])
async def test_nobody_may_not_ask(api: NodesApi, path: str) -> None:
    answer = await api.ask("", "POST", path, {})
    assert answer.status == 403
    assert 'User "system:anonymous" cannot create resource "selfsubject' in answer.body["message"]


@pytest.mark.parametrize("path", [WHO, ACCESS, RULES])
@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE"])
async def test_a_review_can_only_be_created(api: NodesApi, path: str, method: str) -> None:
    assert (await api.ask("admin", method, path)).status == 405
    assert (await api.ask("admin", method, f"{path}/x")).status == 404


def _on(**attributes: Any) -> Object:
    return {"resourceAttributes": attributes}


def _at(path: str, verb: str = "get") -> Object:
    return {"nonResourceAttributes": {"path": path, "verb": verb}}


def _fields(*requirements: Object, **fields: Any) -> Object:
    selector = {"requirements": list(requirements), **fields} if requirements else fields
    return _on(verb="list", resource="pods", fieldSelector=selector)


def _labels(*requirements: Object, **labels: Any) -> Object:
    selector = {"requirements": list(requirements), **labels} if requirements else labels
    return _on(verb="list", resource="pods", labelSelector=selector)


def _term(key: str, operator: str, *values: str) -> Object:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


BASIC = (
    'RBAC: allowed by ClusterRoleBinding "system:basic-user" of ClusterRole "system:basic-user" '
    'to Group "system:authenticated"'
)
DISCOVERY = BASIC.replace("system:basic-user", "system:discovery")
BY_NODE = "can only list/watch pods with spec.nodeName field selector"
BAD_FIELDS = "spec.resourceAttributes.fieldSelector ignored due to parse error"
BAD_LABELS = "spec.resourceAttributes.labelSelector ignored due to parse error"
ON_NODE = _term("spec.nodeName", "In", "n1")


def _no(reason: str = "", error: str = "") -> Object:
    return _status(False, reason, error)


def _yes(reason: str = "", error: str = "") -> Object:
    return _status(True, reason, error)


def _status(allowed: bool, reason: str, error: str) -> Object:
    status: Object = {"allowed": allowed}
    if reason:
        status["reason"] = reason
    return status | ({"evaluationError": error} if error else {})


ANSWERS: list[tuple[str, Object, Object]] = [
    ("admin", _on(), _yes()),
    ("admin", _on(verb="*", group="*", resource="*"), _yes()),
    ("nobody", _on(), _no()),
    ("nobody", {"nonResourceAttributes": {}}, _no()),
    ("nobody", _at("/api"), _yes(DISCOVERY)),
    ("nobody", _at("/healthz"), _yes(DISCOVERY)),
    ("nobody", _at("/metrics"), _no()),
    ("nobody", _at("/api", "post"), _no()),
    (
        "nobody",
        _on(verb="create", group="authorization.k8s.io", resource="selfsubjectaccessreviews"),
        _yes(BASIC),
    ),
    ("nobody", _on(verb="create", group="*", resource="*"), _no()),
    ("n1", _on(verb="get", resource="pods", namespace="default", name="p1"), _yes()),
    (
        "n1",
        _on(verb="get", resource="pods", namespace="default", name="p2"),
        _no("no relationship found between node 'n1' and this object"),
    ),
    ("n1", _on(verb="get", resource="pods", namespace="default"), _no("No Object name found")),
    ("n1", _on(verb="get", resource="pods", subresource="status", name="p1"), _no()),
    ("n1", _on(verb="list", resource="pods"), _no(BY_NODE)),
    ("n1", _fields(ON_NODE), _yes()),
    ("n1", _fields(rawSelector="spec.nodeName=n1"), _yes()),
    ("n1", _fields(_term("spec.nodeName", "NotIn", "n1")), _no(BY_NODE)),
    ("n1", _fields(_term("spec.nodeName", "In", "n1", "n2")), _no(BY_NODE, BAD_FIELDS)),
    ("n1", _fields(_term("spec.nodeName", "Exists")), _no(BY_NODE, BAD_FIELDS)),
    ("n1", _fields(rawSelector="a in (b"), _no(BY_NODE, BAD_FIELDS)),
    (
        "n1",
        _fields(_term("a", "Foo"), ON_NODE),
        _yes(error=BAD_FIELDS.replace("ignored", "partially ignored")),
    ),
    ("n1", _labels(_term("a", "In", "x", "y")), _no(BY_NODE)),
    ("n1", _labels(rawSelector="a in (b)"), _no(BY_NODE)),
    ("n1", _labels(_term("a", "Foo", "x")), _no(BY_NODE, BAD_LABELS)),
    (
        "admin",
        _on(fieldSelector={"rawSelector": "a"}, labelSelector={"rawSelector": "!"}),
        _yes(error=f"{BAD_FIELDS}; {BAD_LABELS}"),
    ),
]


@pytest.mark.parametrize(("user", "spec", "status"), ANSWERS)
async def test_may_i(api: NodesApi, user: str, spec: Object, status: Object) -> None:
    answer = await api.ask(user, "POST", ACCESS, {"spec": spec, "status": {"allowed": True}})
    assert answer.status == 201
    assert answer.body == {
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": spec,
        "status": status,
    }


async def test_a_controller_is_told_by_which_role(api: NodesApi) -> None:
    user = "system:serviceaccount:kube-system:job-controller"
    spec = _on(verb="list", group="batch", resource="jobs")
    answer = await api.ask("admin", "POST", ACCESS, {"spec": spec}, {"Impersonate-User": user})
    assert answer.body["status"]["reason"] == (
        'RBAC: allowed by ClusterRoleBinding "system:controller:job-controller" of ClusterRole '
        '"system:controller:job-controller" to ServiceAccount "job-controller/kube-system"'
    )


ONE_OF_BOTH = (
    "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or "
    "resourceAttributes must be specified"
)
VALUES = "Required value: must be specified when `operator` is 'In' or 'NotIn'"
NO_VALUES = "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
AT_FIELDS = "spec.resourceAttributes.fieldSelector"
AT_LABELS = "spec.resourceAttributes.labelSelector"

MISTAKES: dict[str, tuple[Object, list[str]]] = {
    "nothing asked": ({}, [ONE_OF_BOTH]),
    "an empty spec": ({"spec": {}}, [ONE_OF_BOTH]),
    "both asked": (
        {"spec": {**_on(), **_at("/x")}},
        [
            (
                'spec.nonResourceAttributes: Invalid value: {"Path":"/x","Verb":"get"}: cannot be '
                "specified in combination with resourceAttributes"
            )
        ],
    ),
    "metadata": (
        {"metadata": {"name": "x", "namespace": "y"}},
        [ONE_OF_BOTH, 'metadata: Invalid value: {"name":"x"}: must be empty'],
    ),
    "an empty selector": (
        {"spec": _fields()},
        [
            (
                f"{AT_FIELDS}.requirements: Required value: when {AT_FIELDS} is specified, "
                "requirements or rawSelector is required"
            )
        ],
    ),
    "two selectors in one": (
        {"spec": _fields(_term("a", "In", "b"), rawSelector="a=b")},
        [
            (
                f'{AT_FIELDS}.rawSelector: Invalid value: "a=b": may not specified at the same '
                "time as requirements"
            )
        ],
    ),
    "requirements on fields": (
        {"spec": _fields(_term("a", "Foo"), _term("", "In"), _term("c", "Exists", "x"))},
        [
            f"{AT_FIELDS}.requirements[1].key: Required value: must be specified",
            f"{AT_FIELDS}.requirements[1].values: {VALUES}",
            f"{AT_FIELDS}.requirements[2].values: {NO_VALUES}",
        ],
    ),
    "requirements on labels": (
        {"spec": _labels(_term("a b", "NotIn"), _term("c", "DoesNotExist", "x"))},
        [
            f"{AT_LABELS}.requirements[0].values: {VALUES}",
            f'{AT_LABELS}.requirements[0].key: Invalid value: "a b": name part must consist of',
            f"{AT_LABELS}.requirements[1].values: {NO_VALUES}",
        ],
    ),
    "a label's value": (
        {"spec": _labels(_term("a", "In", "x y"))},
        [f'{AT_LABELS}.requirements[0].values[0]: Invalid value: "x y": a valid label must be'],
    ),
}


@cases("body mistakes", MISTAKES)
async def test_a_question_that_cannot_be_asked(
    api: NodesApi, body: Object, mistakes: list[str]
) -> None:
    answer = await api.ask("admin", "POST", ACCESS, body)
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    assert answer.body["message"].startswith('.authorization.k8s.io "" is invalid: ')
    details = answer.body["details"]
    assert details.keys() == {"group", "causes"}
    causes = [f"{each['field']}: {each['message']}" for each in details["causes"]]
    assert len(causes) == len(mistakes)
    for text, want in zip(causes, mistakes, strict=True):
        assert text.startswith(want)


async def test_a_namespace_in_the_metadata_is_dropped(api: NodesApi) -> None:
    body = {"metadata": {"namespace": "x"}, "spec": _on(verb="get")}
    answer = await api.ask("admin", "POST", ACCESS, body)
    assert (answer.status, answer.body["metadata"]) == (201, {})


PUBLIC = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
ABOUT_ONESELF = [
    {
        "verbs": ["create"],
        "apiGroups": ["authorization.k8s.io"],
        "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
    },
    {
        "verbs": ["create"],
        "apiGroups": ["authentication.k8s.io"],
        "resources": ["selfsubjectreviews"],
    },
]
DISCOVERED = ["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*"]
ON_PATHS = [
    {"verbs": ["get"], "nonResourceURLs": [*DISCOVERED, "/readyz", "/version", "/version/"]},
    {"verbs": ["get"], "nonResourceURLs": PUBLIC},
]


async def test_what_may_i(api: NodesApi) -> None:
    answer = await api.ask("nobody", "POST", RULES, {"spec": {"namespace": "default"}})
    assert answer.status == 201
    assert answer.body == {
        "kind": "SelfSubjectRulesReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": {},
        "status": {
            "resourceRules": ABOUT_ONESELF,
            "nonResourceRules": ON_PATHS,
            "incomplete": False,
        },
    }


async def test_an_administrator_may_everything(api: NodesApi) -> None:
    answer = await api.ask("admin", "POST", RULES, {"spec": {"namespace": "default"}})
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    assert answer.body["status"]["resourceRules"] == [everything, *ABOUT_ONESELF]


async def test_the_rules_of_a_node_are_not_all_of_its_rights(api: NodesApi) -> None:
    answer = await api.ask("n1", "POST", RULES, {"spec": {"namespace": "default"}})
    assert answer.body["status"] == {
        "resourceRules": ABOUT_ONESELF,
        "nonResourceRules": ON_PATHS,
        "incomplete": True,
        "evaluationError": "node authorizer does not support user rule resolution",
    }


async def test_rules_are_asked_for_a_namespace(api: NodesApi) -> None:
    answer = await api.ask("admin", "POST", RULES, {})
    assert (answer.status, answer.body["message"]) == (400, "no namespace on request")


async def test_an_unknown_field_is_told_with_a_refusal_too(api: NodesApi) -> None:
    answer = await api.ask("admin", "POST", RULES, {"foo": 1})
    assert answer.status == 400
    assert answer.headers["Warning"] == '299 - "unknown field \\"foo\\""'
    answer = await api.ask("admin", "POST", f"{RULES}?fieldValidation=Strict", {"foo": 1})
    assert 'strict decoding error: unknown field "foo"' in answer.body["message"]


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("application/json;as=Table;g=meta.k8s.io;v=v1", 406),
        ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", 406),
        ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", 201),
        ("application/yaml", 201),
    ],
)
async def test_the_forms_of_an_answer(api: NodesApi, accept: str, status: int) -> None:
    answer = await api.ask("admin", "POST", WHO, {}, {"Accept": accept})
    assert answer.status == status
    if "as=PartialObjectMetadata;" in accept:
        assert answer.body["kind"] == "PartialObjectMetadata"


async def test_a_body_of_another_kind_is_refused(api: NodesApi) -> None:
    answer = await api.ask("admin", "POST", WHO, {"kind": "Pod"})
    assert answer.status == 400
    assert "cannot be handled as a SelfSubjectReview" in answer.body["message"]
