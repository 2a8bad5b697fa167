# SPDX-License-Identifier: Apache-2.0
"""backoffPolicy: what the failure of a pod means, by ranges and reasons (KEP-3329, first design).

The older alternative to `pod_failure`, with the same evaluation: rules in order, the first match
decides, and the same containers count (behaviour A15.3). `pod_reason` finds the reason of a pod,
`backoff_annotation` the policy of a Job.
"""

from refloat.api import code_ranges
from refloat.api.batch import BackoffPolicy
from refloat.api.core import Pod
from refloat.policy.job import pod_failure, pod_reason
from refloat.policy.job.pod_failure import Exits, PolicyMatcher, Test, Verdict

TERMINATE, IGNORE = pod_failure.TERMINATE, pod_failure.IGNORE

ACTIONS = frozenset((TERMINATE, IGNORE))


def matcher(policy: BackoffPolicy) -> PolicyMatcher:
    """Leaves out rules that are empty or from a newer version."""
    rules: list[tuple[int, str, Test]] = []
    for index, rule in enumerate(policy.rules or ()):
        test: Test | None = None
        if rule.container_exit_code_in is not None:
            test = _codes_test(rule.container_exit_code_in, rule.container_name, is_in=True)
        elif rule.container_exit_code_not_in is not None:
            test = _codes_test(rule.container_exit_code_not_in, rule.container_name, is_in=False)
        elif rule.pod_status_reason_in is not None:
            test = _reason_test(frozenset(rule.pod_status_reason_in), is_in=True)
        elif rule.pod_status_reason_not_in is not None:
            test = _reason_test(frozenset(rule.pod_status_reason_not_in), is_in=False)
        if test is not None and rule.action in ACTIONS:
            rules.append((index, rule.action, test))
    return PolicyMatcher(tuple(rules))


def match_backoff_policy(policy: BackoffPolicy, pod: Pod) -> Verdict:
    """The verdict of the policy on this pod."""
    return matcher(policy).match(pod)


def _codes_test(text: str, name: str | None, *, is_in: bool) -> Test | None:
    try:
        return pod_failure.codes_test(code_ranges.parse(text), name, is_in=is_in)
    except code_ranges.BadCodes:  # only from another server
        return None


def _reason_test(names: frozenset[str], *, is_in: bool) -> Test:
    """For NotIn, none of the names of the pod's reason may be listed."""

    def test(_: Exits, pod: Pod) -> Verdict | None:
        reasons = pod_reason.of(pod)
        if is_in:
            return next((Verdict(reason=each) for each in reasons if each in names), None)
        return None if names.intersection(reasons) else Verdict(reason=reasons[0])

    return test
