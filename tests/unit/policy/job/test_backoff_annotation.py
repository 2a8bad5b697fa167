# SPDX-License-Identifier: Apache-2.0
"""A backoffPolicy in an annotation, where the API has no field for it."""

from typing import Any

import pytest

from refloat.api.batch import Job
from refloat.policy.job import backoff_annotation
from refloat.policy.job.job_gates import ALL_ON, JobGates
from tests.cases import cases
from tests.unit.policy.builders import job, policy, rule

ON = JobGates(retriable_and_non_retriable_failures=True)
AT = "metadata.annotations[refloat.dev/backoff-policy]"

YAML = """
rules:
- containerExitCodeNotIn: 40-50
  containerName: main
  action: Terminate
- {action: Ignore, podStatusReasonNotIn: ['']}
"""
JSON = (
    '{"rules": [{"containerExitCodeNotIn": "40-50", "containerName": "main", '
    '"action": "Terminate"}, {"action": "Ignore", "podStatusReasonNotIn": [""]}]}'
)


def annotated(text: str, **more: Any) -> Job:
    return job(annotations={backoff_annotation.ANNOTATION: text}, **more)


@pytest.mark.parametrize("text", [YAML, JSON], ids=["yaml", "json"])
def test_both_forms_are_read_alike(text: str) -> None:
    batch_job = annotated(text)
    assert backoff_annotation.mistakes(batch_job, ON) == []
    policy_ = backoff_annotation.effective(batch_job, ON)
    assert policy_ is not None
    assert policy_.rules is not None
    first, second = policy_.rules
    assert (first.action, first.container_exit_code_not_in) == ("Terminate", "40-50")
    assert (second.action, second.pod_status_reason_not_in) == ("Ignore", ("",))


@pytest.mark.parametrize("text", [YAML, "not: [right"], ids=["right", "wrong"])
def test_without_the_gate_nobody_looks_at_it(text: str) -> None:
    assert backoff_annotation.effective(annotated(text), ALL_ON) is None
    assert backoff_annotation.mistakes(annotated(text), ALL_ON) == []


def test_a_job_without_it_is_right() -> None:
    assert backoff_annotation.mistakes(job(), ON) == []
    assert backoff_annotation.effective(job(), ON) is None


RULE = "{action: Terminate, containerExitCodeIn: '1'}"


@cases(
    "text want",
    {
        "nothing": ("", "expected an object with rules, found nothing"),
        "a list": ("[]", "expected an object with rules, found array"),
        "no YAML": ("a: [", "yaml: line 1: did not find expected node content"),
        "a field that there is not": ("rule: []", 'unknown field "rule"'),
        "a field twice": ("{rules: [], rules: []}", 'line 1: key "rules" already set in map'),
        "a number for a text": (
            "rules: [{action: Terminate, containerExitCodeIn: 42}]",
            (
                "json: cannot unmarshal number into Go struct field "
                "BackoffPolicyRule.rules.containerExitCodeIn of type string"
            ),
        ),
        "more digits than a number has": (
            f"rules: {'9' * 5000}",
            (
                "json: cannot unmarshal string into Go struct field BackoffPolicy.rules of type "
                "[]v1.BackoffPolicyRule"
            ),
        ),
    },
)
def test_what_cannot_be_read_is_told(text: str, want: str) -> None:
    assert backoff_annotation.mistakes(annotated(text), ON) == [f"{AT}: {want}"]


@cases(
    "text more want",
    {
        "a range": (
            "rules: [{action: Terminate, containerExitCodeIn: 9-1}]",
            {},
            [
                (
                    f'{AT}.rules[0].containerExitCodeIn: Invalid value: "9-1": '
                    'the range "9-1" ends before it begins'
                )
            ],
        ),
        "a container that there is not": (
            "rules: [{action: Terminate, containerExitCodeIn: '1', containerName: x}]",
            {},
            [
                (
                    f'{AT}.rules[0].containerName: Invalid value: "x": must be one of the '
                    "container or initContainer names in the pod template"
                )
            ],
        ),
        "containers that are restarted": (
            f"rules: [{RULE}]",
            {"restart_policy": "OnFailure"},
            [
                (
                    'spec.template.spec.restartPolicy: Invalid value: "OnFailure": '
                    'only "Never" is supported with refloat.dev/backoff-policy'
                )
            ],
        ),
        "two policies": (
            f"rules: [{RULE}]",
            {"podFailurePolicy": policy()},
            [f"{AT}: Forbidden: may not be specified with podFailurePolicy"],
        ),
        "the field, too": (
            f"rules: [{RULE}]",
            {"backoffPolicy": policy(rule("Ignore", containerExitCodeIn="1"))},
            [f"{AT}: Forbidden: may not be specified with spec.backoffPolicy"],
        ),
    },
)
def test_what_is_wrong_is_told_with_its_path(text: str, more: Any, want: list[str]) -> None:
    assert backoff_annotation.mistakes(annotated(text, **more), ON) == want
