# SPDX-License-Identifier: Apache-2.0
"""A backoffPolicy as a podFailurePolicy, and the other way round, where that can be said.

Exit codes can be said by both alike: ranges are written out, lists are made
ranges. Reasons cannot: a podFailurePolicy knows only that a pod was disrupted,
not why. What a conversion claims is in `covers`: for every such pod both
policies decide alike. What cannot be said is refused, with the field and why.

Policies are plain objects here, valid ones, as they stand in a file.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from refloat.api import code_ranges, structs
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.api.validation import backoff_policy as fields
from refloat.policy import disruption, pod_failure, pod_reason

Covers: TypeAlias = Callable[[Pod], bool]

DISRUPTIONS = (
    pod_reason.PREEMPTION,
    pod_reason.TAINT_EVICTION,
    pod_reason.EVICTION_API,
    pod_reason.ORPHANED_POD,
    pod_reason.FORCE_EVICTION,
    pod_reason.NODE_PRESSURE_EVICTION,
    pod_reason.NODE_SHUTDOWN,
    pod_reason.SELF_FENCED,
)
"""The reasons that a pod has together with the condition DisruptionTarget."""

# A kubelet's own words have it too, though not always.
_PERHAPS_DISRUPTIONS = (*DISRUPTIONS, *pod_reason.SECOND_NAMES)

_TO_ACTION = {
    pod_failure.TERMINATE: pod_failure.FAIL_JOB,
    pod_failure.IGNORE: pod_failure.IGNORE,
}
_FROM_ACTION = {theirs: ours for ours, theirs in _TO_ACTION.items()}

_TARGET = {"type": disruption.TARGET, "status": "True"}


class Invalid(ValueError):
    """What was given is no valid policy, or there is none in it."""


class Refused(ValueError):
    """There is no such policy; the text begins with the field."""


@dataclass(frozen=True, slots=True)
class Converted:
    policy: Object
    covers: Covers
    """The pods that both policies decide about alike."""

    warnings: tuple[str, ...] = ()
    """What is lost."""


def _every_pod(_: Pod) -> bool:
    return True


# -- to a podFailurePolicy ---------------------------------------------------------


def to_pod_failure_policy(policy: Object) -> Converted:
    """`Refused` if no podFailurePolicy says the same."""
    rules: list[Object] = []
    reasoned: Object | None = None
    warnings: list[str] = []
    for index, rule in enumerate(policy.get("rules") or ()):
        path = f"backoffPolicy.rules[{index}]"
        made: Object = {"action": _TO_ACTION[rule["action"]]}
        if any(rule.get(name) is not None for name in fields.EXIT_CODES):
            made["onExitCodes"] = _on_exit_codes(rule)
        else:
            if reasoned is not None:
                raise Refused(
                    f"{path}: a second rule on reasons, which DisruptionTarget cannot tell apart"
                )
            reasoned = rule
            warnings.append(_on_reason(rule, path))
            made["onPodConditions"] = [dict(_TARGET)]
        rules.append(made)
    covers = _every_pod if reasoned is None else _covered(reasoned)
    return Converted({"rules": rules}, covers, tuple(warnings))


def _on_exit_codes(rule: Object) -> Object:
    operator = "In" if rule.get(fields.IN) is not None else "NotIn"
    ranges = code_ranges.parse(rule[fields.IN if operator == "In" else fields.NOT_IN])
    # 0 never matches, and without it even all codes are no more than a rule may have.
    codes = [code for code in ranges if code] or [0]
    made: Object = {"operator": operator, "values": codes}
    if rule.get("containerName") is not None:
        made["containerName"] = rule["containerName"]
    return made


def _on_reason(rule: Object, path: str) -> str:
    """The warning, if the condition will do in the place of the reasons."""
    if rule.get(fields.REASON_IN) is not None:
        return _reasons_in(rule[fields.REASON_IN], f"{path}.{fields.REASON_IN}")
    return _reasons_not_in(rule[fields.REASON_NOT_IN], f"{path}.{fields.REASON_NOT_IN}")


def _reasons_in(listed: list[str], path: str) -> str:
    for reason in listed:
        if reason not in DISRUPTIONS:
            said = f"{reason!r} is the reason of no disruption" if reason else "'' is no disruption"
            raise Refused(f"{path}: {said}, and there is no condition for it")
    others = ", ".join(each for each in DISRUPTIONS if each not in listed)
    more = f", also for {others}" if others else ""
    return (
        f"{path}: DisruptionTarget matches whatever a pod was disrupted for{more}, and no pod "
        "that has the reason without the condition"
    )


def _reasons_not_in(listed: list[str], path: str) -> str:
    if pod_reason.NONE not in listed:
        raise Refused(f"{path}: matches pods that were not disrupted, which no condition says")
    for reason in listed:
        if reason in _PERHAPS_DISRUPTIONS:
            raise Refused(f"{path}: DisruptionTarget does not tell {reason} from other disruptions")
    others = " or ".join(each for each in listed if each)
    more = f", and does match a disrupted pod whose reason is {others}" if others else ""
    return (
        f"{path}: DisruptionTarget does not match a pod whose reason is not that of a disruption, "
        f"for example DeadlineExceeded or one that was given in a delete{more}"
    )


# -- to a backoffPolicy ------------------------------------------------------------


def to_backoff_policy(policy: Object) -> Converted:
    """`Refused` if no backoffPolicy says the same."""
    given = policy.get("rules") or []
    rules: list[Object] = []
    warnings: list[str] = []
    for index, rule in enumerate(given):
        path = f"podFailurePolicy.rules[{index}]"
        action = rule["action"]
        if action == pod_failure.COUNT and _only_counts(given[index:]):
            break  # what no rule matches counts
        if action not in _FROM_ACTION:
            raise Refused(f"{path}.action: {_WHY_NOT[action]}")
        made: Object = {"action": _FROM_ACTION[action]}
        if rule.get("onExitCodes") is not None:
            made |= _ranges(rule["onExitCodes"], f"{path}.onExitCodes")
        else:
            _check_conditions(rule["onPodConditions"], f"{path}.onPodConditions")
            made[fields.REASON_IN] = list(DISRUPTIONS)
            warnings.append(
                f"{path}.onPodConditions: a disruption for any other reason than "
                f"{', '.join(DISRUPTIONS)} no longer matches"
            )
        rules.append(made)
    covers = _covered({fields.REASON_IN: list(DISRUPTIONS)}) if warnings else _every_pod
    return Converted({"rules": rules}, covers, tuple(warnings))


_WHY_NOT = {
    pod_failure.COUNT: "Count before other rules keeps these from matching, "
    "which a backoffPolicy cannot say",
    pod_failure.FAIL_INDEX: "FailIndex gives up one index, which a backoffPolicy cannot say",
}


def _only_counts(rules: Iterable[Object]) -> bool:
    return all(rule["action"] == pod_failure.COUNT for rule in rules)


def _ranges(codes: Object, path: str) -> Object:
    """0 is left out: it never matches, and a backoffPolicy does not let it in."""
    values = [value for value in codes["values"] if value]
    for value in values:
        if not 0 < value <= code_ranges.LARGEST:
            detail = f"exit codes of a backoffPolicy are at most {code_ranges.LARGEST}"
            raise Refused(f"{path}.values: {value}: {detail}")
    name = fields.IN if codes["operator"] == "In" else fields.NOT_IN
    made: Object = {name: str(code_ranges.of(values or [0]))}
    if codes.get("containerName") is not None:
        made["containerName"] = codes["containerName"]
    return made


def _check_conditions(patterns: list[Object], path: str) -> None:
    for index, pattern in enumerate(patterns):
        kind, status = pattern.get("type"), pattern.get("status") or "True"
        if (kind, status) != (disruption.TARGET, "True"):
            detail = f"a backoffPolicy cannot ask for the condition {kind}={status}"
            raise Refused(f"{path}[{index}]: {detail}")


# -- what both decide alike --------------------------------------------------------


def _covered(rule: Object) -> Covers:
    """Pods that ended by themselves, or of a disruption that the rule on reasons matches."""
    wanted = frozenset(rule.get(fields.REASON_IN) or ())
    unwanted = frozenset(rule.get(fields.REASON_NOT_IN) or ())

    def covers(pod: Pod) -> bool:
        reasons = pod_reason.of(pod)
        if not structs.is_true(pod.status.conditions, disruption.TARGET):
            return reasons == (pod_reason.NONE,)
        return bool(wanted.intersection(reasons)) if wanted else not unwanted.intersection(reasons)

    return covers
