# SPDX-License-Identifier: Apache-2.0
"""The KEP's alternatives become rules that mean the same, or are refused."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from refloat.api.meta import Object
from refloat.policy import backoff_alternatives
from refloat.policy.policy_conversion import Invalid, Refused
from tests.unit.policy import backoff_stories
from tests.unit.policy.made import policy, rule
from tests.unit.policy.test_backoff_policy import (
    codes_in,
    codes_not_in,
    reason_in,
    reason_not_in,
)
from tests.unit.policy.test_policy_conversion import PODS, ours

IN_MAIN = codes_in("Terminate", "1-12,100-127", "main-job-container")
NOT_IN_MAIN = codes_not_in("Terminate", "40-50", "main-job-container")
STORY_2 = reason_in("Ignore", "Preemption", "NodePressureEviction")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(backoff_stories.ALTERNATIVE_1, [IN_MAIN, STORY_2], id="alternative 1"),
        pytest.param(backoff_stories.ALTERNATIVE_2, [NOT_IN_MAIN, STORY_2], id="alternative 2"),
    ],
)
def test_the_alternatives_of_the_kep_become_rules(text: str, want: list[Object]) -> None:
    given = yaml.safe_load(text)
    assert backoff_alternatives.is_alternative(given)
    assert backoff_alternatives.read(given) == policy(*want)


def on(**condition: Any) -> Object:
    return rule("Ignore", **condition)


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param(
            on(condition={"onContainerExitCode": {"valueNotIn": "3"}}),
            codes_not_in("Ignore", "3"),
            id="under condition, as in Go",
        ),
        pytest.param(
            on(onContainerExitCode={"valueIn": 3}), codes_in("Ignore", "3"), id="a number in YAML"
        ),
        pytest.param(
            on(onPodStatus={"reasonNotIn": [""]}), reason_not_in("Ignore", ""), id="reasonNotIn"
        ),
        pytest.param(
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
            id="all expressions hold",
        ),
        pytest.param(
            on(
                onPodStatus={
                    "reasonExpressions": [
                        {"operator": "NotIn", "values": ["A"]},
                        {"operator": "NotIn", "values": ["", "A"]},
                    ]
                }
            ),
            reason_not_in("Ignore", "A", ""),
            id="none of either",
        ),
        pytest.param(STORY_2, STORY_2, id="a rule as the API takes it, beside others"),
    ],
)
def test_a_rule_of_an_alternative(given: Object, want: Object) -> None:
    other = on(onPodStatus={"reasonIn": ["x"]})
    assert backoff_alternatives.read(policy(other, given))["rules"][1] == want


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param(
            on(onContainerExitCode={"valueIn": "1"}, onPodStatus={"reasonIn": ["x"]}),
            ": expected one of onContainerExitCode and onPodStatus",
            id="both",
        ),
        pytest.param(
            on(onContainerExitCode={}),
            ".onContainerExitCode: expected one of valueIn and valueNotIn",
            id="nothing",
        ),
        pytest.param(
            on(onContainerExitCode={"value": "1"}),
            ".onContainerExitCode.value: unknown field; "
            "expected containerName, valueIn, valueNotIn, valueExpressions",
            id="an unknown field",
        ),
        pytest.param(
            on(onPodStatus={"reasonIn": "x"}),
            ".onPodStatus.reasonIn: expected a list",
            id="a text for a list",
        ),
        pytest.param(
            on(onPodStatus={"reasonExpressions": [{"operator": "Exists", "values": ["x"]}]}),
            ".onPodStatus.reasonExpressions[0].operator: 'Exists' is neither In nor NotIn",
            id="an operator of selectors",
        ),
        pytest.param(
            on(onContainerExitCode={"valueExpressions": [{"operator": "In", "values": ["9-1"]}]}),
            ".onContainerExitCode.valueExpressions[0].values: "
            'the range "9-1" ends before it begins',
            id="a range",
        ),
        pytest.param(
            on(onPodStatus={"reasonExpressions": [{"operator": "In", "values": [[1]]}]}),
            ".onPodStatus.reasonExpressions[0].values[0]: expected a text, found [1]",
            id="a list for a reason",
        ),
        pytest.param(
            on(
                condition={"onContainerExitCode": {"valueIn": "1"}},
                onContainerExitCode={"valueIn": "2"},
            ),
            ".condition.onContainerExitCode: stands beside condition too",
            id="the same twice",
        ),
        pytest.param(
            on(onContainerExitCode={"valueExpressions": []}),
            ".onContainerExitCode.valueExpressions: expected at least one expression",
            id="no expressions",
        ),
        pytest.param(on(condition=[]), ".condition: expected an object, found []", id="no object"),
    ],
)
def test_a_rule_of_an_alternative_is_refused(given: Object, want: str) -> None:
    with pytest.raises(Invalid) as refused:
        backoff_alternatives.read(policy(given))
    assert str(refused.value) == f"backoffPolicy.rules[0]{want}"


def expressions(*given: tuple[str, list[str]]) -> Object:
    listed = [{"operator": operator, "values": values} for operator, values in given]
    return on(onPodStatus={"reasonExpressions": listed})


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param(
            on(
                onContainerExitCode={
                    "valueExpressions": [
                        {"operator": "In", "values": [1]},
                        {"operator": "NotIn", "values": [1]},
                    ]
                }
            ),
            ".onContainerExitCode.valueExpressions: no exit code is in all of them",
            id="codes that exclude each other",
        ),
        pytest.param(
            expressions(("In", ["A"]), ("In", ["B"])),
            ".onPodStatus.reasonExpressions: no reason is in all of them",
            id="reasons that exclude each other",
        ),
        pytest.param(
            expressions(("In", ["Evicted", "A"]), ("NotIn", ["NodePressureEviction"])),
            ".onPodStatus.reasonExpressions: a pod can have both reasons Evicted and "
            "NodePressureEviction, of which no list says this",
            id="one name and not the other",
        ),
        pytest.param(
            expressions(("In", ["Terminated", "A"]), ("In", ["A", "NodeShutdown"])),
            ".onPodStatus.reasonExpressions: a pod can have both reasons Terminated and "
            "NodeShutdown, of which no list says this",
            id="both names",
        ),
    ],
)
def test_what_no_rule_says_is_refused(given: Object, want: str) -> None:
    with pytest.raises(Refused) as refused:
        backoff_alternatives.read(policy(given))
    assert str(refused.value) == f"backoffPolicy.rules[0]{want}"


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
        read = backoff_alternatives.read(policy(expressions(*given)))
    except Refused:
        return
    alone = [
        policy(reason_in("Ignore", *v) if o == "In" else reason_not_in("Ignore", *v))
        for o, v in given
    ]
    for each in PODS:
        want = all(ours(one).judge(each).action for one in alone)
        assert bool(ours(read).judge(each).action) is want
