# SPDX-License-Identifier: Apache-2.0
"""When some indexes are enough (behaviour A17)."""

from typing import Any

import msgspec
import pytest

from refloat.api import index_intervals
from refloat.api.batch import SuccessPolicy
from refloat.api.meta import Object
from refloat.policy.job import success_policy

RULES: list[Any] = [
    pytest.param([{"succeededIndexes": "0-2"}], "0-2", 0, id="all listed indexes"),
    pytest.param([{"succeededIndexes": "0-2"}], "0,2-5", None, id="not all of them"),
    pytest.param([{"succeededIndexes": "0-2"}], "0-9", 0, id="and others beside them"),
    pytest.param([{"succeededCount": 2}], "3,7", 0, id="a number of any indexes"),
    pytest.param([{"succeededCount": 3}], "3,7", None, id="too few of them"),
    pytest.param(
        [{"succeededIndexes": "0-4", "succeededCount": 2}], "1,3,8", 0, id="some of the listed"
    ),
    pytest.param(
        [{"succeededIndexes": "0-4", "succeededCount": 2}], "1,8,9", None, id="too few of those"
    ),
    pytest.param(
        [{"succeededIndexes": "1,2", "succeededCount": 2}], "1,2", 0, id="all of the listed"
    ),
    pytest.param([{"succeededIndexes": "1,3,5-7"}], "1,3,5-7", 0, id="lists of several pieces"),
    pytest.param(
        [{"succeededIndexes": "1,3,5-7"}], "0-3,5,6", None, id="lists of several pieces, in part"
    ),
    pytest.param(
        [{"succeededIndexes": "9"}, {"succeededCount": 1}, {"succeededIndexes": "0"}],
        "0",
        1,
        id="the first rule that is met",
    ),
    pytest.param(
        [{"succeededIndexes": "8-20"}], "8,9", 0, id="indexes that the Job no longer has are waived"
    ),
    pytest.param(
        [{"succeededIndexes": "10-20"}], "0-9", None, id="a rule of only such indexes is not met"
    ),
    pytest.param([{"succeededIndexes": "x"}], "0", None, id="a rule that makes no sense is not"),
    pytest.param([{"succeededCount": 0}], "", None, id="nothing is enough before a success"),
    pytest.param([{"succeededCount": 0}], "5", 0, id="a count of 0 is met by any success"),
    pytest.param([{}], "0-9", None, id="an empty rule is never met"),
    pytest.param([], "0-9", None, id="a policy without rules is never met"),
]


@pytest.mark.parametrize(("rules", "done", "want"), RULES)
def test_the_first_rule_that_is_met(rules: list[Object], done: str, want: int | None) -> None:
    policy = msgspec.convert({"rules": rules}, SuccessPolicy)
    assert success_policy.matching_rule(policy, 10, index_intervals.parse(done, 10)) == want


def test_without_a_policy_no_rule_is_met() -> None:
    assert success_policy.matching_rule(None, 3, [(0, 2)]) is None


def test_the_message_names_the_rule() -> None:
    """Behaviour A17.3."""
    assert success_policy.message(1) == "Matched rules at index 1"
