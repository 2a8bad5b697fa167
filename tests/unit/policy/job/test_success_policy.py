# SPDX-License-Identifier: Apache-2.0
"""When some indexes are enough (behaviour A17)."""

from typing import Any

import msgspec

from refloat.api import index_intervals
from refloat.api.batch import SuccessPolicy
from refloat.api.meta import Object
from refloat.policy.job import success_policy
from tests.cases import cases

RULES: dict[str, Any] = {
    "all listed indexes": ([{"succeededIndexes": "0-2"}], "0-2", 0),
    "not all of them": ([{"succeededIndexes": "0-2"}], "0,2-5", None),
    "and others beside them": ([{"succeededIndexes": "0-2"}], "0-9", 0),
    "a number of any indexes": ([{"succeededCount": 2}], "3,7", 0),
    "too few of them": ([{"succeededCount": 3}], "3,7", None),
    "some of the listed": ([{"succeededIndexes": "0-4", "succeededCount": 2}], "1,3,8", 0),
    "too few of those": ([{"succeededIndexes": "0-4", "succeededCount": 2}], "1,8,9", None),
    "all of the listed": ([{"succeededIndexes": "1,2", "succeededCount": 2}], "1,2", 0),
    "lists of several pieces": ([{"succeededIndexes": "1,3,5-7"}], "1,3,5-7", 0),
    "lists of several pieces, in part": ([{"succeededIndexes": "1,3,5-7"}], "0-3,5,6", None),
    "the first rule that is met": (
        [{"succeededIndexes": "9"}, {"succeededCount": 1}, {"succeededIndexes": "0"}],
        "0",
        1,
    ),
    "indexes that the Job no longer has are waived": ([{"succeededIndexes": "8-20"}], "8,9", 0),
    "a rule of only such indexes is not met": ([{"succeededIndexes": "10-20"}], "0-9", None),
    "a rule that makes no sense is not": ([{"succeededIndexes": "x"}], "0", None),
    "nothing is enough before a success": ([{"succeededCount": 0}], "", None),
    "a count of 0 is met by any success": ([{"succeededCount": 0}], "5", 0),
    "an empty rule is never met": ([{}], "0-9", None),
    "a policy without rules is never met": ([], "0-9", None),
}


@cases("rules done want", RULES)
def test_the_first_rule_that_is_met(rules: list[Object], done: str, want: int | None) -> None:
    policy = msgspec.convert({"rules": rules}, SuccessPolicy)
    assert success_policy.matching_rule(policy, 10, index_intervals.parse(done, 10)) == want


def test_without_a_policy_no_rule_is_met() -> None:
    assert success_policy.matching_rule(None, 3, [(0, 2)]) is None


def test_the_message_names_the_rule() -> None:
    """Behaviour A17.3."""
    assert success_policy.message(1) == "Matched rules at index 1"
