# SPDX-License-Identifier: Apache-2.0
"""successPolicy: which succeeded indexes complete the Job (behaviour A17).

`outcome` decides what follows from a match.
"""

from refloat.api import index_intervals
from refloat.api.batch import SuccessPolicy
from refloat.api.index_intervals import Interval


def matching_rule(
    policy: SuccessPolicy | None, completions: int, succeeded: list[Interval]
) -> int | None:
    """The index of the first rule that is met."""
    if policy is None or not succeeded:
        return None
    count = index_intervals.count(succeeded)
    for number, rule in enumerate(policy.rules or ()):
        common = count
        if rule.succeeded_indexes is not None:
            indexes = index_intervals.parse(rule.succeeded_indexes, completions)
            if not indexes:  # also when a smaller number of completions removed all of them
                continue
            # What both lists have is what their union has less than the two together.
            most = index_intervals.count(indexes)
            common += most - index_intervals.count(index_intervals.union(indexes, succeeded))
            if common == most:
                return number
        if rule.succeeded_count is not None and common >= rule.succeeded_count:
            return number
    return None


def message(rule: int) -> str:
    return f"Matched rules at index {rule}"
