# SPDX-License-Identifier: Apache-2.0
"""successPolicy: which succeeded indexes complete the Job (behaviour A17).

`outcome` decides what follows from a match.
"""

from refloat.api import index_intervals
from refloat.api.batch import SuccessPolicy, SuccessPolicyRule
from refloat.api.index_intervals import Interval


def matching_rule(
    policy: SuccessPolicy | None, completions: int, succeeded: list[Interval]
) -> int | None:
    """The index of the first rule that is met."""
    if policy is None or not succeeded:
        return None
    for index, rule in enumerate(policy.rules or ()):
        if _is_met(rule, completions, succeeded):
            return index
    return None


def _is_met(rule: SuccessPolicyRule, completions: int, succeeded: list[Interval]) -> bool:
    least = rule.succeeded_count
    if rule.succeeded_indexes is None:
        return least is not None and index_intervals.count(succeeded) >= least
    indexes = index_intervals.parse(rule.succeeded_indexes, completions)
    if not indexes:  # also when a smaller number of completions removed all of them
        return False
    common = _common(indexes, succeeded)
    return common == index_intervals.count(indexes) or (least is not None and common >= least)


def _common(one: list[Interval], other: list[Interval]) -> int:
    """How many indexes two ordered lists share, in one walk along both."""
    total = i = j = 0
    while i < len(one) and j < len(other):
        (a, b), (c, d) = one[i], other[j]
        total += max(0, min(b, d) - max(a, c) + 1)
        if b <= d:
            i += 1
        if d <= b:
            j += 1
    return total


def message(rule: int) -> str:
    return f"Matched rules at index {rule}"
