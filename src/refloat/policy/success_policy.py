# SPDX-License-Identifier: Apache-2.0
"""successPolicy: when some indexes are enough (behaviour A17).

What follows from a match is decided in `outcome`.
"""

from refloat.api import intervals
from refloat.api.batch import SuccessPolicy, SuccessPolicyRule
from refloat.api.intervals import Interval


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
    wanted = rule.succeeded_count
    if rule.succeeded_indexes is None:
        return wanted is not None and intervals.count(succeeded) >= wanted
    listed = intervals.parse(rule.succeeded_indexes, completions)
    if not listed:  # also when all of them went with a smaller number of completions
        return False
    met = _common(listed, succeeded)
    return met == intervals.count(listed) or (wanted is not None and met >= wanted)


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
