# SPDX-License-Identifier: Apache-2.0
"""What a Job's backoffPolicy must be (KEP-3329, first design)."""

from typing import Any

from refloat.api.defaults import job as defaults
from refloat.api.meta import Object
from refloat.api.validation import backoff_policy
from refloat.api.validation import job as validation
from tests.cases import cases

CONDITIONS = (
    "containerExitCodeIn, containerExitCodeNotIn, podStatusReasonIn and podStatusReasonNotIn"
)


def rule(**values: Any) -> Object:
    return {"action": "Terminate", **values}


def errors(*rules: Object) -> list[str]:
    containers = frozenset({"main", "init"})
    return [
        str(each)
        for each in backoff_policy.validate(
            {"rules": list(rules)}, "spec.backoffPolicy", containers
        )
    ]


@cases(
    "values",
    {
        "codes": {"containerExitCodeIn": "1-12,100-127"},
        "of a container": {"containerExitCodeIn": "3", "containerName": "main"},
        "0, NotIn": {"containerExitCodeNotIn": "0,40-50", "containerName": "init"},
        "reasons": {"podStatusReasonIn": ["Preemption", ""]},
        "any reason": {"podStatusReasonNotIn": [""]},
        "Ignore": {"podStatusReasonIn": ["x"], "action": "Ignore"},
    },
)
def test_a_rule_is_accepted(values: Object) -> None:
    assert errors(rule(**values)) == []


def test_a_policy_without_rules_is_accepted() -> None:
    assert errors() == []


@cases(
    "values want",
    {
        "nothing": (
            {"action": ""},
            [
                '.action: Required value: valid values: ["Ignore" "Terminate"]',
                f": Invalid value: specifying one of {CONDITIONS} is required",
            ],
        ),
        "an action of the other policy": (
            {"action": "FailJob", "podStatusReasonIn": ["x"]},
            ['.action: Unsupported value: "FailJob": supported values: "Ignore", "Terminate"'],
        ),
        "two conditions": (
            {"containerExitCodeIn": "3", "podStatusReasonIn": ["x"]},
            [f": Invalid value: specifying more than one of {CONDITIONS} is not supported"],
        ),
        "a container's reason": (
            {"podStatusReasonIn": ["x"], "containerName": "main"},
            [
                (
                    '.containerName: Invalid value: "main": may only be specified with '
                    "containerExitCodeIn or containerExitCodeNotIn"
                )
            ],
        ),
        "a container that there is not": (
            {"containerExitCodeIn": "3", "containerName": "other"},
            [
                (
                    '.containerName: Invalid value: "other": must be one of the container or '
                    "initContainer names in the pod template"
                )
            ],
        ),
        "no codes": (
            {"containerExitCodeIn": ""},
            [
                (
                    ".containerExitCodeIn: Required value: at least one exit code, "
                    "for example 3 or 1-12,100-127"
                )
            ],
        ),
        "a reversed range": (
            {"containerExitCodeNotIn": "50-40"},
            [
                (
                    '.containerExitCodeNotIn: Invalid value: "50-40": '
                    'the range "50-40" ends before it begins'
                )
            ],
        ),
        "0 where it cannot match": (
            {"containerExitCodeIn": "0-3"},
            [
                (
                    '.containerExitCodeIn: Invalid value: "0-3": must not have 0 for '
                    "containerExitCodeIn: a container that ended with 0 has not failed"
                )
            ],
        ),
        "no reasons": (
            {"podStatusReasonNotIn": []},
            [
                (
                    ".podStatusReasonNotIn: Required value: at least one reason; "
                    "'' is that of a pod without one"
                )
            ],
        ),
        "reasons twice": (
            {"podStatusReasonIn": ["a", "", "a", ""]},
            [
                '.podStatusReasonIn[2]: Duplicate value: "a"',
                '.podStatusReasonIn[3]: Duplicate value: ""',
            ],
        ),
        "too many reasons": (
            {"podStatusReasonIn": [str(n) for n in range(101)]},
            [".podStatusReasonIn: Too many: 101: must have at most 100 items"],
        ),
        "a reason that nobody writes": (
            {"podStatusReasonIn": ["x" * 1025]},
            [".podStatusReasonIn[0]: Too long: may not be more than 1024 bytes"],
        ),
    },
)
def test_a_rule_is_refused(values: Object, want: list[str]) -> None:
    fine = rule(podStatusReasonIn=["fine"])
    assert errors(fine, rule(**values)) == [f"spec.backoffPolicy.rules[1]{each}" for each in want]


def test_more_than_twenty_rules_are_refused() -> None:
    assert errors(*[rule(podStatusReasonIn=["x"])] * 20) == []
    want = "spec.backoffPolicy.rules: Too many: 21: must have at most 20 items"
    assert errors(*[rule(podStatusReasonIn=["x"])] * 21) == [want]


# -- beside other fields of a Job -------------------------------------------------


def in_job(**spec: Any) -> list[str]:
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {
            "restartPolicy": spec.pop("restartPolicy", "Never"),
            "containers": [{"name": "main", "image": "i"}],
        },
    }
    job_spec = {
        "backoffPolicy": {"rules": []},
        "manualSelector": True,
        "template": template,
        **spec,
    }
    job_spec.setdefault("selector", {"matchLabels": {"a": "b"}})
    job = {"metadata": {"name": "j", "namespace": "n"}, "spec": job_spec}
    defaults.apply(job)
    return [str(each) for each in validation.validate_create(job)]


@cases(
    "values want",
    {
        "alone": ({}, []),
        "Failed": ({"podReplacementPolicy": "Failed"}, []),
        "pods are judged when they have ended": (
            {"podReplacementPolicy": "TerminatingOrFailed"},
            [
                (
                    'spec.podReplacementPolicy: Unsupported value: "TerminatingOrFailed": '
                    'supported values: "Failed"'
                )
            ],
        ),
        "two policies": (
            {"podFailurePolicy": {"rules": []}},
            ["spec.backoffPolicy: Forbidden: may not be specified with podFailurePolicy"],
        ),
        "containers of the template": (
            {"backoffPolicy": {"rules": [rule(containerExitCodeIn="1", containerName="x")]}},
            [
                (
                    'spec.backoffPolicy.rules[0].containerName: Invalid value: "x": must be one of '
                    "the container or initContainer names in the pod template"
                )
            ],
        ),
    },
)
def test_a_policy_beside_other_fields(values: Object, want: list[str]) -> None:
    assert in_job(**values) == want


def test_containers_must_not_be_restarted_in_place() -> None:
    want = (
        'spec.template.spec.restartPolicy: Invalid value: "OnFailure": '
        'only "Never" is supported when backoffPolicy is specified'
    )
    assert in_job(restartPolicy="OnFailure") == [want]
