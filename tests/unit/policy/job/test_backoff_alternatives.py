# SPDX-License-Identifier: Apache-2.0
"""The KEP's alternatives become rules that mean the same, or are refused."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from refloat.api.meta import Object
from refloat.policy.job import backoff_alternatives
from refloat.policy.job.policy_conversion import InvalidPolicy, NotConvertible
from tests.cases import cases
from tests.unit.policy.builders import policy, rule
from tests.unit.policy.job import backoff_stories
from tests.unit.policy.job.test_backoff_policy import (
    codes_in,
    codes_not_in,
    reason_in,
    reason_not_in,
)
from tests.unit.policy.job.test_policy_conversion import PODS, ours

IN_MAIN = codes_in("Terminate", "1-12,100-127", "main-job-container")
NOT_IN_MAIN = codes_not_in("Terminate", "40-50", "main-job-container")
STORY_2 = reason_in("Ignore", "Preemption", "NodePressureEviction")


@cases(
    "text want",
    {
        "alternative 1": (backoff_stories.ALTERNATIVE_1, [IN_MAIN, STORY_2]),
        "alternative 2": (backoff_stories.ALTERNATIVE_2, [NOT_IN_MAIN, STORY_2]),
    },
)
def test_the_alternatives_of_the_kep_become_rules(text: str, want: list[Object]) -> None:
    source = yaml.safe_load(text)
    assert backoff_alternatives.is_alternative(source)
    assert backoff_alternatives.read(source) == policy(*want)


def on(**condition: Any) -> Object:
    return rule("Ignore", **condition)


@cases(
    "given want",
    {
        "under condition, as in Go": (
            on(condition={"onContainerExitCode": {"valueNotIn": "3"}}),
            codes_not_in("Ignore", "3"),
        ),
        "a number in YAML": (on(onContainerExitCode={"valueIn": 3}), codes_in("Ignore", "3")),
        "reasonNotIn": (on(onPodStatus={"reasonNotIn": [""]}), reason_not_in("Ignore", "")),
        "all expressions hold": (
            on(
                onContainerExitCode={
                    "valueExpressions": [
                        {"operator": "In", "values": ["1-10", 20]},
                        {"operator": "NotIn", "values": [3, "5-6"]},
                        {"operator": "In", "values": ["2-30"]},
                    ]
                }
            ),
            codes_in("Ignore", "2,4,7-10,20"),
        ),
        "none of either": (
            on(
                onPodStatus={
                    "reasonExpressions": [
                        {"operator": "NotIn", "values": ["A"]},
                        {"operator": "NotIn", "values": ["", "A"]},
                    ]
                }
            ),
            reason_not_in("Ignore", "A", ""),
        ),
        "a rule as the API takes it, beside others": (STORY_2, STORY_2),
    },
)
def test_a_rule_of_an_alternative(given: Object, want: Object) -> None:
    other = on(onPodStatus={"reasonIn": ["x"]})
    assert backoff_alternatives.read(policy(other, given))["rules"][1] == want


@cases(
    "given want",
    {
        "both": (
            on(onContainerExitCode={"valueIn": "1"}, onPodStatus={"reasonIn": ["x"]}),
            ": expected one of onContainerExitCode and onPodStatus",
        ),
        "nothing": (
            on(onContainerExitCode={}),
            ".onContainerExitCode: expected one of valueIn and valueNotIn",
        ),
        "an unknown field": (
            on(onContainerExitCode={"value": "1"}),
            (
                ".onContainerExitCode.value: unknown field; "
                "expected containerName, valueIn, valueNotIn, valueExpressions"
            ),
        ),
        "a text for a list": (
            on(onPodStatus={"reasonIn": "x"}),
            ".onPodStatus.reasonIn: expected a list",
        ),
        "an operator of selectors": (
            on(onPodStatus={"reasonExpressions": [{"operator": "Exists", "values": ["x"]}]}),
            ".onPodStatus.reasonExpressions[0].operator: 'Exists' is neither In nor NotIn",
        ),
        "a range": (
            on(onContainerExitCode={"valueExpressions": [{"operator": "In", "values": ["9-1"]}]}),
            (
                ".onContainerExitCode.valueExpressions[0].values: "
                'the range "9-1" ends before it begins'
            ),
        ),
        "a list for a reason": (
            on(onPodStatus={"reasonExpressions": [{"operator": "In", "values": [[1]]}]}),
            ".onPodStatus.reasonExpressions[0].values[0]: expected a text, found [1]",
        ),
        "the same twice": (
            on(
                condition={"onContainerExitCode": {"valueIn": "1"}},
                onContainerExitCode={"valueIn": "2"},
            ),
            ".condition.onContainerExitCode: stands beside condition too",
        ),
        "no expressions": (
            on(onContainerExitCode={"valueExpressions": []}),
            ".onContainerExitCode.valueExpressions: expected at least one expression",
        ),
        "no object": (on(condition=[]), ".condition: expected an object, found []"),
    },
)
def test_a_rule_of_an_alternative_is_refused(given: Object, want: str) -> None:
    with pytest.raises(InvalidPolicy) as error:
        backoff_alternatives.read(policy(given))
    assert str(error.value) == f"backoffPolicy.rules[0]{want}"


def expressions(*given: tuple[str, list[str]]) -> Object:
    expressions = [{"operator": operator, "values": values} for operator, values in given]
    return on(onPodStatus={"reasonExpressions": expressions})


@cases(
    "given want",
    {
        "codes that exclude each other": (
            on(
                onContainerExitCode={
                    "valueExpressions": [
                        {"operator": "In", "values": [1]},
                        {"operator": "NotIn", "values": [1]},
                    ]
                }
            ),
            ".onContainerExitCode.valueExpressions: no exit code is in all of them",
        ),
        "reasons that exclude each other": (
            expressions(("In", ["A"]), ("In", ["B"])),
            ".onPodStatus.reasonExpressions: no reason is in all of them",
        ),
        "one name and not the other": (
            expressions(("In", ["Evicted", "A"]), ("NotIn", ["NodePressureEviction"])),
            (
                ".onPodStatus.reasonExpressions: a pod can have both reasons Evicted and "
                "NodePressureEviction, of which no list says this"
            ),
        ),
        "both names": (
            expressions(("In", ["Terminated", "A"]), ("In", ["A", "NodeShutdown"])),
            (
                ".onPodStatus.reasonExpressions: a pod can have both reasons Terminated and "
                "NodeShutdown, of which no list says this"
            ),
        ),
    },
)
def test_what_no_rule_says_is_refused(given: Object, want: str) -> None:
    with pytest.raises(NotConvertible) as error:
        backoff_alternatives.read(policy(given))
    assert str(error.value) == f"backoffPolicy.rules[0]{want}"


NAMES_OF_REASONS = ["", "A", "Evicted", "NodePressureEviction", "Preempting", "Preemption"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["In", "NotIn"]),
            st.lists(st.sampled_from(NAMES_OF_REASONS), min_size=1, unique=True),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_a_rule_that_is_read_matches_where_all_its_expressions_do(
    given: list[tuple[str, list[str]]],
) -> None:
    try:
        parsed = backoff_alternatives.read(policy(expressions(*given)))
    except NotConvertible:
        return
    alone = [
        policy(reason_in("Ignore", *v) if o == "In" else reason_not_in("Ignore", *v))
        for o, v in given
    ]
    for each in PODS:
        want = all(ours(one).match(each).action for one in alone)
        assert bool(ours(parsed).match(each).action) is want
