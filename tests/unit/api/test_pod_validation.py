# SPDX-License-Identifier: Apache-2.0
"""Pods are refused, changed and warned about as Kubernetes does."""

from typing import Any

import pytest

from refloat.api import pod_preparation
from refloat.api.meta import Object
from refloat.api.validation import pod as validation
from tests.unit.api import pod_cases

Case = dict[str, Any]


@pytest.mark.parametrize("case", pod_cases.cases("create"), ids=pod_cases.ids("create"))
def test_a_new_pod_is_refused_with_what_kubernetes_says(case: Case) -> None:
    pod, _ = pod_cases.new_pod(case)
    assert pod_cases.causes(validation.validate_create(pod)) == pod_cases.want_causes(case)


ACCEPTED = [case for case in pod_cases.cases("create") if "causes" not in case]


@pytest.mark.parametrize("case", ACCEPTED, ids=[case["id"] for case in ACCEPTED])
def test_an_accepted_pod_has_the_warnings_of_kubernetes(case: Case) -> None:
    pod, before = pod_cases.new_pod(case)
    assert before + validation.warnings(pod) == case.get("warnings", [])


TEMPLATES = pod_cases.templates()


@pytest.mark.parametrize("case", TEMPLATES, ids=[case["id"] for case in TEMPLATES])
def test_a_template_is_refused_with_what_kubernetes_says(case: Case) -> None:
    errors = validation.validate_template(pod_cases.new_template(case), "template")
    want = case["template"]
    if want == "same":
        expected = [
            (kind, f"template.{at}", text) for kind, at, text in pod_cases.want_causes(case)
        ]
    else:
        expected = pod_cases.want_causes(want)
    assert pod_cases.causes(errors) == expected


ACCEPTED_TEMPLATES = [
    case
    for case in TEMPLATES
    if "causes" not in (case if case["template"] == "same" else case["template"])
]


@pytest.mark.parametrize(
    "case", ACCEPTED_TEMPLATES, ids=[each["id"] for each in ACCEPTED_TEMPLATES]
)
def test_an_accepted_template_has_the_warnings_of_kubernetes(case: Case) -> None:
    warnings = validation.template_warnings(pod_cases.new_template(case), "template")
    if case["template"] == "same":
        assert warnings == [f"template.{each}" for each in case.get("warnings", [])]
    else:
        assert warnings == case["template"].get("warnings", [])


@pytest.mark.parametrize("case", pod_cases.cases("update"), ids=pod_cases.ids("update"))
def test_a_change_is_refused_with_what_kubernetes_says(case: Case) -> None:
    old = pod_cases.stored_pod(case)
    new = pod_cases.changed_pod(case, old)
    pod_preparation.prepare_update(new, old)
    assert pod_cases.causes(validation.validate_update(new, old)) == pod_cases.want_causes(case)


@pytest.mark.parametrize("case", pod_cases.cases("status"), ids=pod_cases.ids("status"))
def test_a_change_of_status_is_refused_with_what_kubernetes_says(case: Case) -> None:
    # behaviour C8.8, C8.9
    old = pod_cases.stored_pod(case)
    new = pod_cases.changed_pod(case, old)
    pod_preparation.prepare_status_update(new, old)
    errors = validation.validate_status_update(new, old)
    assert pod_cases.causes(errors) == pod_cases.want_causes(case)
    if not errors:
        assert validation.status_warnings(new) == case.get("warnings", [])


def test_a_finalizer_cannot_be_added_to_a_pod_that_is_being_deleted() -> None:
    case = pod_cases.cases("update")[0]
    old = pod_cases.stored_pod(case)
    old["metadata"] |= {"deletionTimestamp": pod_cases.NOW, "finalizers": ["a/b"]}
    new = pod_cases.changed_pod(case, old)
    new["metadata"]["finalizers"] = ["a/b", "c/d", "a/c"]
    errors = validation.validate_update(new, old)
    text = (
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being "
        'deleted, found new finalizers []string{"a/c", "c/d"}'
    )
    assert [str(each) for each in errors] == [text, text]


def test_a_finalizer_can_be_removed_from_a_pod_that_is_being_deleted() -> None:
    case = pod_cases.cases("update")[0]
    old = pod_cases.stored_pod(case)
    old["metadata"] |= {"deletionTimestamp": pod_cases.NOW, "finalizers": ["a/b", "c/d"]}
    new = pod_cases.changed_pod(case, old)
    new["metadata"]["finalizers"] = ["a/b"]
    assert validation.validate_update(new, old) == []


def test_overhead_is_checked_like_a_containers_limits() -> None:
    pod, _ = pod_cases.new_pod({"pod": {"spec": {"overhead": {"cpu": "-1", "foo": "1"}}}})
    errors = [(each.path, each.detail) for each in validation.validate_create(pod)]
    assert errors == [
        ("spec.overhead.limits[cpu]", "must be greater than or equal to 0"),
        ("spec.overhead.limits[foo]", "must be a standard resource type or fully qualified"),
        ("spec.overhead.limits[foo]", "must be a standard resource for containers"),
    ]


def test_an_unknown_preemption_policy_is_refused() -> None:
    pod, _ = pod_cases.new_pod({"pod": {"spec": {"preemptionPolicy": "x"}}})
    [error] = validation.validate_create(pod)
    assert error.path == "spec.preemptionPolicy"
    assert error.detail == 'supported values: "PreemptLowerPriority", "Never"'


def test_rules_of_an_init_container_without_a_policy_are_looked_at_no_further() -> None:
    container = {"name": "i", "image": "i", "restartPolicyRules": [{"action": "x"}]}
    pod, _ = pod_cases.new_pod({"pod": {"spec": {"initContainers": [container]}}})
    [error] = validation.validate_create(pod)
    assert str(error) == (
        "spec.initContainers[0].restartPolicy: Required value: "
        "must specify restartPolicy when restart rules are used"
    )


def test_rules_of_a_container_without_a_policy_are_looked_at_all_the_same() -> None:
    container = {"name": "c", "image": "i", "restartPolicyRules": [{"action": "x"}]}
    pod, _ = pod_cases.new_pod({"pod": {"spec": {"containers": [container]}}})
    assert [each.path for each in validation.validate_create(pod)] == [
        "spec.containers[0].restartPolicy",
        "spec.containers[0].restartPolicyRules[0].action",
        "spec.containers[0].restartPolicyRules[0].exitCodes",
    ]


def changed(before: Object, after: Object) -> list[str]:
    """The errors of a change of these fields of a pod's specification."""
    case = {**pod_cases.cases("update")[0], "patch": {"spec": after}}
    old = pod_cases.stored_pod(case)
    old["spec"] |= before
    return [str(each) for each in validation.validate_update(pod_cases.changed_pod(case, old), old)]


def gates(*names: str) -> Object:
    return {"schedulingGates": [{"name": name} for name in names]}


def test_a_new_gate_that_is_there_twice_is_forbidden_once() -> None:
    where, why = "spec.schedulingGates[1]", "only deletion is allowed, but found new"
    assert changed(gates("a"), gates("b", "b")) == [
        f'{where}: Duplicate value: "b"',
        f"{where}.name: Forbidden: {why} scheduling gate 'b'",
    ]


def relabelled(policy: str) -> Object:
    return {"securityContext": {"seLinuxChangePolicy": policy}}


def test_a_pod_that_has_a_selinux_policy_may_have_each() -> None:
    [error] = changed(relabelled("Recursive"), relabelled("MountOption"))
    assert error.startswith("spec: Forbidden: pod updates may not change fields other than")
    assert changed(relabelled("MountOption"), relabelled("MountOption")) == []


def test_a_pod_that_has_a_selinux_policy_is_told_of_each() -> None:
    assert changed(relabelled("Recursive"), relabelled("x"))[0] == (
        'spec.securityContext.seLinuxChangePolicy: Unsupported value: "x": '
        'supported values: "MountOption", "Recursive"'
    )


def test_a_pod_that_has_no_selinux_policy_is_told_of_one() -> None:
    assert changed({}, relabelled("MountOption"))[0] == (
        'spec.securityContext.seLinuxChangePolicy: Unsupported value: "MountOption": '
        'supported values: "Recursive"'
    )


def test_a_template_that_has_a_selinux_policy_may_have_each() -> None:
    template = pod_cases.new_template({"pod": {"spec": relabelled("MountOption")}})
    assert validation.validate_template(template, "t", stored=template) == []
    assert [each.path for each in validation.validate_template(template, "t")] == [
        "t.spec.securityContext.seLinuxChangePolicy"
    ]
