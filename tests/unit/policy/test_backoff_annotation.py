# SPDX-License-Identifier: Apache-2.0
"""A backoffPolicy in an annotation, where the API has no field for it."""

from typing import Any

import msgspec
import pytest

from refloat.api.batch import Job
from refloat.policy import backoff_annotation
from refloat.policy.switches import ALL_ON, Switches
from tests.unit.policy.made import job, policy, rule

ON = Switches(retriable_and_non_retriable_failures=True)
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
    made = job(**more)
    annotations = {backoff_annotation.ANNOTATION: text}
    return msgspec.structs.replace(
        made, metadata=msgspec.structs.replace(made.metadata, annotations=annotations)
    )


@pytest.mark.parametrize("text", [YAML, JSON], ids=["yaml", "json"])
def test_both_forms_are_read_alike(text: str) -> None:
    made = annotated(text)
    assert backoff_annotation.mistakes(made, ON) == []
    found = backoff_annotation.effective(made, ON)
    assert found is not None
    assert found.rules is not None
    first, second = found.rules
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


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("", "expected an object with rules, found nothing", id="nothing"),
        pytest.param("[]", "expected an object with rules, found array", id="a list"),
        pytest.param("a: [", "yaml: line 1: did not find expected node content", id="no YAML"),
        pytest.param("rule: []", 'unknown field "rule"', id="a field that there is not"),
        pytest.param(
            "{rules: [], rules: []}",
            'line 1: key "rules" already set in map',
            id="a field twice",
        ),
        pytest.param(
            "rules: [{action: Terminate, containerExitCodeIn: 42}]",
            "json: cannot unmarshal number into Go struct field "
            "BackoffPolicyRule.rules.containerExitCodeIn of type string",
            id="a number for a text",
        ),
        pytest.param(
            f"rules: {'9' * 5000}",
            "json: cannot unmarshal string into Go struct field BackoffPolicy.rules of type "
            "[]v1.BackoffPolicyRule",
            id="more digits than a number has",
        ),
    ],
)
def test_what_cannot_be_read_is_told(text: str, want: str) -> None:
    assert backoff_annotation.mistakes(annotated(text), ON) == [f"{AT}: {want}"]


@pytest.mark.parametrize(
    ("text", "more", "want"),
    [
        pytest.param(
            "rules: [{action: Terminate, containerExitCodeIn: 9-1}]",
            {},
            [
                (
                    f'{AT}.rules[0].containerExitCodeIn: Invalid value: "9-1": '
                    'the range "9-1" ends before it begins'
                )
            ],
            id="a range",
        ),
        pytest.param(
            "rules: [{action: Terminate, containerExitCodeIn: '1', containerName: x}]",
            {},
            [
                (
                    f'{AT}.rules[0].containerName: Invalid value: "x": must be one of the '
                    "container or initContainer names in the pod template"
                )
            ],
            id="a container that there is not",
        ),
        pytest.param(
            f"rules: [{RULE}]",
            {"restart_policy": "OnFailure"},
            [
                (
                    'spec.template.spec.restartPolicy: Invalid value: "OnFailure": '
                    'only "Never" is supported with refloat.dev/backoff-policy'
                )
            ],
            id="containers that are restarted",
        ),
        pytest.param(
            f"rules: [{RULE}]",
            {"podFailurePolicy": policy()},
            [f"{AT}: Forbidden: may not be specified with podFailurePolicy"],
            id="two policies",
        ),
        pytest.param(
            f"rules: [{RULE}]",
            {"backoffPolicy": policy(rule("Ignore", containerExitCodeIn="1"))},
            [f"{AT}: Forbidden: may not be specified with spec.backoffPolicy"],
            id="the field, too",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_path(text: str, more: Any, want: list[str]) -> None:
    assert backoff_annotation.mistakes(annotated(text, **more), ON) == want
