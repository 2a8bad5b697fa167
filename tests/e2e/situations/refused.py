# SPDX-License-Identifier: Apache-2.0
"""Pods that quota, admission policies and webhooks of a Kubernetes refuse.

The embedded cluster has none of these. Each rule concerns the pods of one situation alone.
"""

from refloat.api.meta import Object
from refloat.explain.codes import Code
from tests import builders
from tests.e2e.cluster import Api
from tests.e2e.node_cluster import wait
from tests.e2e.situations.steps import CORE, PODS, Situation, event, job

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
RULE = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["pods"],
}
LIMITED = {"kind": "PriorityClass", "value": 0, "metadata": {"name": "explain-limited"}}
POLICY = "explain-team-label"
WEBHOOK = "explain-unreachable"


def _selected(label: str) -> Object:
    return {"matchLabels": {"situation": label}}


def prepare(api: Api, namespace: str) -> None:
    """The rules, for one namespace."""
    clear(api)
    within = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    api.create("/apis/scheduling.k8s.io/v1/priorityclasses", LIMITED)
    scope = {
        "operator": "In",
        "scopeName": "PriorityClass",
        "values": [LIMITED["metadata"]["name"]],  # type: ignore[index]
    }
    quota = {"hard": {"pods": "0"}, "scopeSelector": {"matchExpressions": [scope]}}
    api.create(f"{CORE}/resourcequotas", {"metadata": {"name": "small"}, "spec": quota})
    policy = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "namespaceSelector": within,
            "objectSelector": _selected("policy"),
            "resourceRules": [RULE],
        },
        "validations": [
            {
                "expression": "'team' in object.metadata.labels",
                "message": "the label team is missing",
            }
        ],
    }
    api.create(
        f"{ADMISSION}/validatingadmissionpolicies", {"metadata": {"name": POLICY}, "spec": policy}
    )
    binding = {"policyName": POLICY, "validationActions": ["Deny"]}
    api.create(
        f"{ADMISSION}/validatingadmissionpolicybindings",
        {"metadata": {"name": POLICY}, "spec": binding},
    )
    webhook = {
        "name": "unreachable.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"url": "https://127.0.0.1:1/validate"},
        "namespaceSelector": within,
        "objectSelector": _selected("webhook"),
        "rules": [RULE],
    }
    api.create(
        f"{ADMISSION}/validatingwebhookconfigurations",
        {"metadata": {"name": WEBHOOK}, "webhooks": [webhook]},
    )
    for label, words in (("policy", POLICY), ("webhook", "failed calling webhook")):
        wait(lambda: words in _refusal(api, label), f"{label}: no refusal")  # noqa: B023


def _refusal(api: Api, label: str) -> str:
    """What the server says of a pod with the label; rules take effect some time after the write."""
    body = builders.pod("trial", labels={"situation": label})
    return api.ask("POST", f"{PODS}?dryRun=All", body).text


def clear(api: Api) -> None:
    api.ask("DELETE", f"/apis/scheduling.k8s.io/v1/priorityclasses/{LIMITED['metadata']['name']}")  # type: ignore[index]
    for kind in ("validatingadmissionpolicies", "validatingadmissionpolicybindings"):
        api.ask("DELETE", f"{ADMISSION}/{kind}/{POLICY}")
    api.ask("DELETE", f"{ADMISSION}/validatingwebhookconfigurations/{WEBHOOK}")


REFUSED = (
    Situation(
        "quota",
        "A ResourceQuota refuses the pods",
        Code.QUOTA,
        ("exceeded quota: small", "kubectl describe quota"),
        (job("quota", pod={"priorityClassName": "explain-limited"}),),
        event("quota", "FailedCreate"),
    ),
    Situation(
        "admission-policy",
        "A ValidatingAdmissionPolicy refuses the pods",
        Code.ADMISSION,
        ("the label team is missing",),
        (job("admission-policy", template={"labels": {"situation": "policy"}}),),
        event("admission-policy", "FailedCreate"),
    ),
    Situation(
        "webhook",
        "An admission webhook cannot be reached",
        Code.WEBHOOK,
        ("failed calling webhook", "unreachable.example.com"),
        (job("webhook", template={"labels": {"situation": "webhook"}}),),
        event("webhook", "FailedCreate"),
    ),
    Situation(
        "no-account",
        "The service account of the pods does not exist",
        Code.ADMISSION,
        ('serviceaccount "trainer" not found',),
        (job("no-account", pod={"serviceAccountName": "trainer"}),),
        event("no-account", "FailedCreate"),
    ),
)
