# SPDX-License-Identifier: Apache-2.0
"""Conversions of policies for failures: equivalent rules, and refusals."""

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refloat.agent import self_fence
from refloat.api.batch import BackoffPolicy, PodFailurePolicy
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.policy.job import backoff_policy, pod_failure, pod_reason, policy_conversion
from refloat.policy.job.pod_failure import PolicyMatcher
from refloat.policy.job.policy_conversion import DISRUPTIONS, NotConvertible
from refloat.policy.scheduling import disruption_target
from tests.cases import cases
from tests.unit.policy.builders import container, failed, on_codes, on_condition, pod, policy
from tests.unit.policy.job.test_backoff_policy import (
    codes_in,
    codes_not_in,
    reason_in,
    reason_not_in,
)
from tests.unit.policy.job.test_pod_reason import ended

ALL = ", ".join(DISRUPTIONS)


# -- to a podFailurePolicy ---------------------------------------------------------


@cases(
    "given want",
    {
        "ranges": (codes_in("Terminate", "1-3,100"), on_codes("FailJob", "In", 1, 2, 3, 100)),
        "NotIn, of a container": (
            codes_not_in("Ignore", "40-42", "main"),
            on_codes("Ignore", "NotIn", 40, 41, 42, name="main"),
        ),
        "all codes, of which 0 never matches: as many as a rule may have": (
            codes_not_in("Terminate", "0-255"),
            on_codes("FailJob", "NotIn", *range(1, 256)),
        ),
        "any failure": (codes_not_in("Terminate", "0"), on_codes("FailJob", "NotIn", 0)),
    },
)
def test_exit_codes_are_written_out(given: Object, want: Object) -> None:
    conversion = policy_conversion.to_pod_failure_policy(policy(given))
    assert conversion.policy == policy(want)
    assert conversion.warnings == ()


@cases(
    "given want_lost",
    {
        "story 2": (
            reason_in("Ignore", "Preemption", "NodePressureEviction"),
            (
                "backoffPolicy.rules[0].podStatusReasonIn: DisruptionTarget matches whatever a pod "
                "was disrupted for, also for TaintEviction, EvictionAPI, OrphanedPod, "
                "ForceEviction, NodeShutdown, SelfFenced, and no pod that has the reason without "
                "the condition"
            ),
        ),
        "all of them": (
            reason_in("Ignore", *DISRUPTIONS),
            (
                "backoffPolicy.rules[0].podStatusReasonIn: DisruptionTarget matches whatever a pod "
                "was disrupted for, and no pod that has the reason without the condition"
            ),
        ),
        "story 2, any reason": (
            reason_not_in("Ignore", ""),
            (
                "backoffPolicy.rules[0].podStatusReasonNotIn: DisruptionTarget does not match a "
                "pod whose reason is not that of a disruption, for example DeadlineExceeded or one "
                "that was given in a delete"
            ),
        ),
        "any reason but some": (
            reason_not_in("Ignore", "", "DeadlineExceeded", "Mine"),
            (
                "backoffPolicy.rules[0].podStatusReasonNotIn: DisruptionTarget does not match a "
                "pod whose reason is not that of a disruption, for example DeadlineExceeded or one "
                "that was given in a delete, and does match a disrupted pod whose reason is "
                "DeadlineExceeded or Mine"
            ),
        ),
    },
)
def test_reasons_become_the_condition_of_a_disruption(given: Object, want_lost: str) -> None:
    conversion = policy_conversion.to_pod_failure_policy(policy(given))
    assert conversion.policy == policy(on_condition("Ignore"))
    assert conversion.warnings == (want_lost,)


@cases(
    "rules want",
    {
        "a reason without a condition": (
            [reason_in("Ignore", "Preemption", "DeadlineExceeded")],
            (
                "[0].podStatusReasonIn: 'DeadlineExceeded' is the reason of no disruption, "
                "and there is no condition for it"
            ),
        ),
        "no reason": (
            [reason_in("Terminate", "")],
            "[0].podStatusReasonIn: '' is no disruption, and there is no condition for it",
        ),
        "all but one": (
            [reason_not_in("Terminate", "Preemption")],
            (
                "[0].podStatusReasonNotIn: matches pods that were not disrupted, "
                "which no condition says"
            ),
        ),
        "all disruptions but one": (
            [reason_not_in("Ignore", "", "Preemption")],
            (
                "[0].podStatusReasonNotIn: DisruptionTarget does not tell Preemption from other "
                "disruptions"
            ),
        ),
        "two": (
            [reason_in("Ignore", "Preemption"), reason_in("Terminate", "OrphanedPod")],
            "[1]: a second rule on reasons, which DisruptionTarget cannot tell apart",
        ),
    },
)
def test_reasons_that_no_condition_says_are_refused(rules: list[Object], want: str) -> None:
    with pytest.raises(NotConvertible) as error:
        policy_conversion.to_pod_failure_policy(policy(*rules))
    assert str(error.value) == f"backoffPolicy.rules{want}"


# -- to a backoffPolicy ------------------------------------------------------------


@cases(
    "rules want",
    {
        "values become ranges": (
            [on_codes("FailJob", "In", 1, 2, 3, 100)],
            [codes_in("Terminate", "1-3,100")],
        ),
        "0 never matches": (
            [on_codes("Ignore", "NotIn", 0, 40, 41, name="main")],
            [codes_not_in("Ignore", "40,41", "main")],
        ),
        "any failure": ([on_codes("FailJob", "NotIn", 0)], [codes_not_in("Terminate", "0")]),
        "what no rule matches counts": (
            [on_codes("FailJob", "In", 1), on_codes("Count", "In", 2), on_condition("Count")],
            [codes_in("Terminate", "1")],
        ),
        "a disruption": ([on_condition("Ignore")], [reason_in("Ignore", *DISRUPTIONS)]),
        "nothing": ([], []),
    },
)
def test_a_pod_failure_policy_is_converted(rules: list[Object], want: list[Object]) -> None:
    assert policy_conversion.to_backoff_policy(policy(*rules)).policy == policy(*want)


def test_what_is_lost_of_a_disruption_is_told() -> None:
    conversion = policy_conversion.to_backoff_policy(policy(on_condition("Ignore")))
    assert conversion.warnings == (
        (
            "podFailurePolicy.rules[0].onPodConditions: a disruption for any other reason than "
            f"{ALL} no longer matches"
        ),
    )


@cases(
    "rules want",
    {
        "FailIndex": (
            [on_codes("FailIndex", "In", 1)],
            "[0].action: FailIndex gives up one index, which a backoffPolicy cannot say",
        ),
        "Count": (
            [on_codes("Count", "In", 1), on_codes("FailJob", "NotIn", 2)],
            (
                "[0].action: Count before other rules keeps these from matching, "
                "which a backoffPolicy cannot say"
            ),
        ),
        "a code of Windows": (
            [on_codes("FailJob", "In", 256)],
            "[0].onExitCodes.values: 256: exit codes of a backoffPolicy are at most 255",
        ),
        "another condition": (
            [on_condition("Ignore", "ConfigIssue")],
            "[0].onPodConditions[0]: a backoffPolicy cannot ask for the condition ConfigIssue=True",
        ),
        "no disruption": (
            [on_condition("Ignore", status="False")],
            (
                "[0].onPodConditions[0]: a backoffPolicy cannot ask for the condition "
                "DisruptionTarget=False"
            ),
        ),
    },
)
def test_what_a_backoff_policy_cannot_say_is_refused(rules: list[Object], want: str) -> None:
    with pytest.raises(NotConvertible) as error:
        policy_conversion.to_backoff_policy(policy(*rules))
    assert str(error.value) == f"podFailurePolicy.rules{want}"


# -- both decide alike -------------------------------------------------------------

# Each disruption as pods show it: by the condition alone, and with a reason.
DISRUPTED = [
    *(ended(target=target) for target in pod_reason._OF_DISRUPTIONS),
    *(ended(reason, target=target) for target, reason in pod_reason._OF_DISRUPTIONS.items()),
    *(ended(word, target=disruption_target.BY_KUBELET) for word in pod_reason.SECOND_NAMES),
    ended(self_fence.REASON, target=disruption_target.BY_KUBELET),
]
REASONS_OF_DISRUPTIONS = {reason for each in DISRUPTED for reason in pod_reason.of(each)}

# Few codes, so that rules and pods meet: all of their combinations are judged.
CODES = range(1, 7)
STATUSES = ["", *pod_reason.SECOND_NAMES, "DeadlineExceeded", "Mine", *DISRUPTIONS]
TARGETS = [
    "",
    "PreemptionByScheduler",
    "EvictionByEvictionAPI",
    "TerminationByKubelet",
    "ByTheMoon",
]
EXITS = [
    [],
    *[[("main", code)] for code in CODES],
    *[[("main", 0), ("other", code)] for code in (1, 3)],
    [("other", 5), ("main", 2)],
]


def with_exits(of: Pod, exits: list[tuple[str, int]]) -> Pod:
    new_pod = pod("u", "Failed", containers=[container(name, code) for name, code in exits])
    statuses = new_pod.status.container_statuses
    return msgspec.structs.replace(
        of, status=msgspec.structs.replace(of.status, container_statuses=statuses)
    )


PODS = [
    with_exits(ended(status, annotation, target), exits)
    for status, annotation, target, exits in itertools.product(
        STATUSES, ["", "Preemption"], TARGETS, EXITS
    )
    if not (status and annotation)
]

SAME = {"FailJob": "Terminate", "Count": "", "": ""}


def decisions(matcher: PolicyMatcher, of: Pod) -> tuple[str, int | None]:
    """The action, in the words of a backoffPolicy, and the rule; a Count is no match."""
    verdict = matcher.match(of)
    action = SAME.get(verdict.action, verdict.action)
    return action, verdict.rule if action else None


def ours(given: Object) -> PolicyMatcher:
    return backoff_policy.matcher(msgspec.convert(given, BackoffPolicy))


def theirs(given: Object) -> PolicyMatcher:
    return pod_failure.matcher(msgspec.convert(given, PodFailurePolicy))


NAMES = st.sampled_from([None, "main", "other"])
RANGES = st.builds(
    lambda one, other: f"{min(one, other)}-{max(one, other)}",
    st.sampled_from(CODES),
    st.sampled_from(CODES),
)
ACTIONS = st.sampled_from(["Terminate", "Ignore"])
OUR_CODES = st.builds(codes_in, ACTIONS, RANGES, NAMES) | st.builds(
    codes_not_in, ACTIONS, RANGES, NAMES
)
OUR_REASONS = st.builds(
    lambda action, listed: reason_in(action, *listed),
    ACTIONS,
    st.lists(st.sampled_from(DISRUPTIONS), min_size=1, unique=True),
) | st.builds(
    lambda action, listed: reason_not_in(action, "", *listed),
    ACTIONS,
    st.lists(st.sampled_from(["DeadlineExceeded", "Mine"]), unique=True),
)
THEIR_RULES = st.builds(
    lambda action, operator, values, name: on_codes(action, operator, *sorted(values), name=name),
    st.sampled_from(["FailJob", "Ignore"]),
    st.sampled_from(["In", "NotIn"]),
    st.sets(st.sampled_from(CODES), min_size=1),
    NAMES,
) | st.builds(on_condition, st.sampled_from(["FailJob", "Ignore"]))


@given(st.lists(OUR_CODES, max_size=2), st.none() | OUR_REASONS, st.lists(OUR_CODES, max_size=2))
def test_a_converted_policy_decides_alike_on_every_pod_that_it_covers(
    before: list[Object], reasons: Object | None, after: list[Object]
) -> None:
    rules = policy(*before, *([reasons] if reasons else []), *after)
    conversion = policy_conversion.to_pod_failure_policy(rules)
    one, other = ours(rules), theirs(conversion.policy)
    covered = [each for each in PODS if conversion.covers(each)]
    assert len(covered) == len(PODS) if reasons is None else 20 < len(covered) < len(PODS)
    for each in covered:
        assert decisions(one, each) == decisions(other, each)


@pytest.mark.parametrize("reason", sorted(REASONS_OF_DISRUPTIONS))
def test_to_leave_one_disruption_out_is_refused(reason: str) -> None:
    with pytest.raises(NotConvertible, match=f"does not tell {reason} from other disruptions"):
        policy_conversion.to_pod_failure_policy(policy(reason_not_in("Ignore", "", reason)))


OTHER_REASONS = st.text(min_size=1).filter(lambda text: text not in REASONS_OF_DISRUPTIONS)


@given(st.lists(OTHER_REASONS, unique=True))
def test_what_is_not_refused_decides_alike_on_every_disruption(listed: list[str]) -> None:
    rules = policy(reason_not_in("Terminate", "", *listed))
    conversion = policy_conversion.to_pod_failure_policy(rules)
    for each in DISRUPTED:
        assert conversion.covers(each)
        assert decisions(ours(rules), each) == decisions(theirs(conversion.policy), each)


def test_every_disruption_has_a_reason_to_be_converted_to() -> None:
    """A reason is left out only if a kubelet uses it for other endings, too."""
    assert set(DISRUPTIONS) == REASONS_OF_DISRUPTIONS - pod_reason.SECOND_NAMES.keys()


@given(st.lists(THEIR_RULES, max_size=4), st.lists(st.just(on_codes("Count", "In", 1)), max_size=1))
def test_a_converted_pod_failure_policy_decides_alike_on_every_pod_that_it_covers(
    rules: list[Object], counting: list[Object]
) -> None:
    conversion = policy_conversion.to_backoff_policy(policy(*rules, *counting))
    one, other = theirs(policy(*rules, *counting)), ours(conversion.policy)
    covered = [each for each in PODS if conversion.covers(each)]
    assert len(covered) > 100
    for each in covered:
        assert decisions(one, each) == decisions(other, each)


@given(st.lists(OUR_CODES, max_size=4))
def test_exit_codes_go_there_and_back(rules: list[Object]) -> None:
    there = policy_conversion.to_pod_failure_policy(policy(*rules)).policy
    back = policy_conversion.to_backoff_policy(there).policy
    assert policy_conversion.to_pod_failure_policy(back).policy == there


@cases(
    "of want",
    {
        "it failed by itself": (failed(exit_code=1), True),
        "preempted": (ended("Preemption", target="PreemptionByScheduler"), True),
        "on stock Kubernetes": (ended(target="PreemptionByScheduler"), True),
        "for another reason": (ended(target="EvictionByEvictionAPI"), False),
        "without the condition": (ended("Preemption"), False),
        "for a reason of its own": (ended("DeadlineExceeded"), False),
    },
)
def test_what_a_conversion_of_reasons_claims(of: Pod, want: bool) -> None:
    conversion = policy_conversion.to_pod_failure_policy(policy(reason_in("Ignore", "Preemption")))
    assert conversion.covers(of) is want
