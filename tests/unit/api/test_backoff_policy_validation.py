# SPDX-License-Identifier: Apache-2.0
"""What a Job's backoffPolicy must be (KEP-3329, first design)."""

from typing import Any

import pytest

from refloat.api.defaults import job as defaults
from refloat.api.meta import Object
from refloat.api.validation import backoff_policy
from refloat.api.validation import job as validation

CONDITIONS = (
    "containerExitCodeIn, containerExitCodeNotIn, podStatusReasonIn and podStatusReasonNotIn"
)


def rule(**given: Any) -> Object:
    return {"action": "Terminate", **given}


def mistakes(*rules: Object) -> list[str]:
    containers = frozenset({"main", "init"})
    return [
        str(each)
        for each in backoff_policy.validate(
            {"rules": list(rules)}, "spec.backoffPolicy", containers
        )
    ]


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"containerExitCodeIn": "1-12,100-127"}, id="codes"),
        pytest.param({"containerExitCodeIn": "3", "containerName": "main"}, id="of a container"),
        pytest.param({"containerExitCodeNotIn": "0,40-50", "containerName": "init"}, id="0, NotIn"),
        pytest.param({"podStatusReasonIn": ["Preemption", ""]}, id="reasons"),
        pytest.param({"podStatusReasonNotIn": [""]}, id="any reason"),
        pytest.param({"podStatusReasonIn": ["x"], "action": "Ignore"}, id="Ignore"),
    ],
)
def test_a_rule_is_accepted(given: Object) -> None:
    assert mistakes(rule(**given)) == []


def test_a_policy_without_rules_is_accepted() -> None:
    assert mistakes() == []


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param(
            {"action": ""},
            [
                '.action: Required value: valid values: ["Ignore" "Terminate"]',
                f": Invalid value: specifying one of {CONDITIONS} is required",
            ],
            id="nothing",
        ),
        pytest.param(
            {"action": "FailJob", "podStatusReasonIn": ["x"]},
            ['.action: Unsupported value: "FailJob": supported values: "Ignore", "Terminate"'],
            id="an action of the other policy",
        ),
        pytest.param(
            {"containerExitCodeIn": "3", "podStatusReasonIn": ["x"]},
            [f": Invalid value: specifying more than one of {CONDITIONS} is not supported"],
            id="two conditions",
        ),
        pytest.param(
            {"podStatusReasonIn": ["x"], "containerName": "main"},
            [
                (
                    '.containerName: Invalid value: "main": may only be specified with '
                    "containerExitCodeIn or containerExitCodeNotIn"
                )
            ],
            id="a container's reason",
        ),
        pytest.param(
            {"containerExitCodeIn": "3", "containerName": "other"},
            [
                (
                    '.containerName: Invalid value: "other": must be one of the container or '
                    "initContainer names in the pod template"
                )
            ],
            id="a container that there is not",
        ),
        pytest.param(
            {"containerExitCodeIn": ""},
            [
                (
                    ".containerExitCodeIn: Required value: at least one exit code, "
                    "for example 3 or 1-12,100-127"
                )
            ],
            id="no codes",
        ),
        pytest.param(
            {"containerExitCodeNotIn": "50-40"},
            [
                (
                    '.containerExitCodeNotIn: Invalid value: "50-40": '
                    'the range "50-40" ends before it begins'
                )
            ],
            id="a reversed range",
        ),
        pytest.param(
            {"containerExitCodeIn": "0-3"},
            [
                (
                    '.containerExitCodeIn: Invalid value: "0-3": must not have 0 for '
                    "containerExitCodeIn: a container that ended with 0 has not failed"
                )
            ],
            id="0 where it cannot match",
        ),
        pytest.param(
            {"podStatusReasonNotIn": []},
            [
                (
                    ".podStatusReasonNotIn: Required value: at least one reason; "
                    "'' is that of a pod without one"
                )
            ],
            id="no reasons",
        ),
        pytest.param(
            {"podStatusReasonIn": ["a", "", "a", ""]},
            [
                '.podStatusReasonIn[2]: Duplicate value: "a"',
                '.podStatusReasonIn[3]: Duplicate value: ""',
            ],
            id="reasons twice",
        ),
        pytest.param(
            {"podStatusReasonIn": [str(n) for n in range(101)]},
            [".podStatusReasonIn: Too many: 101: must have at most 100 items"],
            id="too many reasons",
        ),
        pytest.param(
            {"podStatusReasonIn": ["x" * 1025]},
            [".podStatusReasonIn[0]: Too long: may not be more than 1024 bytes"],
            id="a reason that nobody writes",
        ),
    ],
)
def test_a_rule_is_refused(given: Object, want: list[str]) -> None:
    fine = rule(podStatusReasonIn=["fine"])
    assert mistakes(fine, rule(**given)) == [f"spec.backoffPolicy.rules[1]{each}" for each in want]


def test_more_than_twenty_rules_are_refused() -> None:
    assert mistakes(*[rule(podStatusReasonIn=["x"])] * 20) == []
    want = "spec.backoffPolicy.rules: Too many: 21: must have at most 20 items"
    assert mistakes(*[rule(podStatusReasonIn=["x"])] * 21) == [want]


# -- beside other fields of a Job -------------------------------------------------


def in_job(**spec: Any) -> list[str]:
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {
            "restartPolicy": spec.pop("restartPolicy", "Never"),
            "containers": [{"name": "main", "image": "i"}],
        },
    }
    made = {"backoffPolicy": {"rules": []}, "manualSelector": True, "template": template, **spec}
    made.setdefault("selector", {"matchLabels": {"a": "b"}})
    job = {"metadata": {"name": "j", "namespace": "n"}, "spec": made}
    defaults.apply(job)
    return [str(each) for each in validation.validate_create(job)]


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param({}, [], id="alone"),
        pytest.param({"podReplacementPolicy": "Failed"}, [], id="Failed"),
        pytest.param(
            {"podReplacementPolicy": "TerminatingOrFailed"},
            [
                (
                    'spec.podReplacementPolicy: Unsupported value: "TerminatingOrFailed": '
                    'supported values: "Failed"'
                )
            ],
            id="pods are judged when they have ended",
        ),
        pytest.param(
            {"podFailurePolicy": {"rules": []}},
            ["spec.backoffPolicy: Forbidden: may not be specified with podFailurePolicy"],
            id="two policies",
        ),
        pytest.param(
            {"backoffPolicy": {"rules": [rule(containerExitCodeIn="1", containerName="x")]}},
            [
                (
                    'spec.backoffPolicy.rules[0].containerName: Invalid value: "x": must be one of '
                    "the container or initContainer names in the pod template"
                )
            ],
            id="containers of the template",
        ),
    ],
)
def test_a_policy_beside_other_fields(given: Object, want: list[str]) -> None:
    assert in_job(**given) == want


def test_containers_must_not_be_restarted_in_place() -> None:
    want = (
        'spec.template.spec.restartPolicy: Invalid value: "OnFailure": '
        'only "Never" is supported when backoffPolicy is specified'
    )
    assert in_job(restartPolicy="OnFailure") == [want]
