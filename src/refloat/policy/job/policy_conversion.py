# SPDX-License-Identifier: Apache-2.0
"""Converts a backoffPolicy to a podFailurePolicy and back, where both can express the same.

Both can express exit codes: ranges become lists, lists become ranges. A podFailurePolicy cannot
express reasons: it knows only that a pod was disrupted, not why. `covers` selects the pods that
both policies decide alike. A rule without equivalent is refused, with the field and the reason.

Policies are plain valid objects here, as in a file.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from refloat.api import code_ranges, structs
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.api.validation import backoff_policy as fields
from refloat.policy.job import pod_failure, pod_reason
from refloat.policy.scheduling import disruption_target

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

# Pods with a kubelet's own words often have the condition, too.
_PERHAPS_DISRUPTIONS = (*DISRUPTIONS, *pod_reason.SECOND_NAMES)

_TO_ACTION = {
    pod_failure.TERMINATE: pod_failure.FAIL_JOB,
    pod_failure.IGNORE: pod_failure.IGNORE,
}
_FROM_ACTION = {theirs: ours for ours, theirs in _TO_ACTION.items()}

_TARGET = {"type": disruption_target.TARGET, "status": "True"}


class InvalidPolicy(ValueError):
    """The input is no valid policy, or contains none."""


class NotConvertible(ValueError):
    """No equivalent policy exists; the text begins with the field."""


@dataclass(frozen=True, slots=True)
class Conversion:
    policy: Object
    covers: Covers
    """The pods that both policies decide about alike."""

    warnings: tuple[str, ...] = ()
    """What is lost."""


def _every_pod(_: Pod) -> bool:
    return True


# -- to a podFailurePolicy ---------------------------------------------------------


def to_pod_failure_policy(policy: Object) -> Conversion:
    """Raises `NotConvertible` if no podFailurePolicy is equivalent."""
    rules: list[Object] = []
    reasoned: Object | None = None
    warnings: list[str] = []
    for index, rule in enumerate(policy.get("rules") or ()):
        path = f"backoffPolicy.rules[{index}]"
        converted: Object = {"action": _TO_ACTION[rule["action"]]}
        if any(rule.get(name) is not None for name in fields.EXIT_CODES):
            operator = "In" if rule.get(fields.IN) is not None else "NotIn"
            ranges = code_ranges.parse(rule[fields.IN if operator == "In" else fields.NOT_IN])
            # 0 never matches, and without it even all codes are no more than a rule may have.
            codes = [code for code in ranges if code] or [0]
            converted["onExitCodes"] = {"operator": operator, "values": codes}
            if rule.get("containerName") is not None:
                converted["onExitCodes"]["containerName"] = rule["containerName"]
        else:
            if reasoned is not None:
                raise NotConvertible(
                    f"{path}: a second rule on reasons, which DisruptionTarget cannot tell apart"
                )
            reasoned = rule
            warnings.append(_loss(rule, path))
            converted["onPodConditions"] = [dict(_TARGET)]
        rules.append(converted)
    covers = _every_pod if reasoned is None else _covered(reasoned)
    return Conversion({"rules": rules}, covers, tuple(warnings))


def _loss(rule: Object, path: str) -> str:
    """What a rule on reasons loses, as a warning."""
    if (reasons := rule.get(fields.REASON_IN)) is not None:
        path = f"{path}.{fields.REASON_IN}"
        for reason in reasons:
            if reason not in DISRUPTIONS:
                problem = f"{reason!r} is the reason of no" if reason else "'' is no"
                raise NotConvertible(
                    f"{path}: {problem} disruption, and there is no condition for it"
                )
        others = ", ".join(each for each in DISRUPTIONS if each not in reasons)
        more = f", also for {others}" if others else ""
        return (
            f"{path}: DisruptionTarget matches whatever a pod was disrupted for{more}, and no pod "
            "that has the reason without the condition"
        )
    path, reasons = f"{path}.{fields.REASON_NOT_IN}", rule[fields.REASON_NOT_IN]
    if pod_reason.NONE not in reasons:
        raise NotConvertible(
            f"{path}: matches pods that were not disrupted, which no condition says"
        )
    for reason in reasons:
        if reason in _PERHAPS_DISRUPTIONS:
            raise NotConvertible(
                f"{path}: DisruptionTarget does not tell {reason} from other disruptions"
            )
    others = " or ".join(each for each in reasons if each)
    more = f", and does match a disrupted pod whose reason is {others}" if others else ""
    return (
        f"{path}: DisruptionTarget does not match a pod whose reason is not that of a disruption, "
        f"for example DeadlineExceeded or one that was given in a delete{more}"
    )


# -- to a backoffPolicy ------------------------------------------------------------


def to_backoff_policy(policy: Object) -> Conversion:
    """Raises `NotConvertible` if no backoffPolicy is equivalent."""
    old_rules = policy.get("rules") or []
    rules: list[Object] = []
    warnings: list[str] = []
    for index, rule in enumerate(old_rules):
        path = f"podFailurePolicy.rules[{index}]"
        action = rule["action"]
        if all(each["action"] == pod_failure.COUNT for each in old_rules[index:]):
            break  # what no rule matches counts
        if action not in _FROM_ACTION:
            raise NotConvertible(f"{path}.action: {_WHY_NOT[action]}")
        converted: Object = {"action": _FROM_ACTION[action]}
        if rule.get("onExitCodes") is not None:
            converted |= _ranges(rule["onExitCodes"], f"{path}.onExitCodes")
        else:
            for number, pattern in enumerate(rule["onPodConditions"]):
                kind, status = pattern.get("type"), pattern.get("status") or "True"
                if (kind, status) != (disruption_target.TARGET, "True"):
                    raise NotConvertible(
                        f"{path}.onPodConditions[{number}]: "
                        f"a backoffPolicy cannot ask for the condition {kind}={status}"
                    )
            converted[fields.REASON_IN] = list(DISRUPTIONS)
            warnings.append(
                f"{path}.onPodConditions: a disruption for any other reason than "
                f"{', '.join(DISRUPTIONS)} no longer matches"
            )
        rules.append(converted)
    covers = _covered({fields.REASON_IN: list(DISRUPTIONS)}) if warnings else _every_pod
    return Conversion({"rules": rules}, covers, tuple(warnings))


_WHY_NOT = {
    pod_failure.COUNT: "Count before other rules keeps these from matching, "
    "which a backoffPolicy cannot say",
    pod_failure.FAIL_INDEX: "FailIndex gives up one index, which a backoffPolicy cannot say",
}


def _ranges(codes: Object, path: str) -> Object:
    """The ranges without 0, which never matches, and which a backoffPolicy does not allow."""
    values = [value for value in codes["values"] if value]
    for value in values:
        if not 0 < value <= code_ranges.LARGEST:
            detail = f"exit codes of a backoffPolicy are at most {code_ranges.LARGEST}"
            raise NotConvertible(f"{path}.values: {value}: {detail}")
    name = fields.IN if codes["operator"] == "In" else fields.NOT_IN
    converted: Object = {name: str(code_ranges.of(values or [0]))}
    if codes.get("containerName") is not None:
        converted["containerName"] = codes["containerName"]
    return converted


# -- what both decide alike --------------------------------------------------------


def _covered(rule: Object) -> Covers:
    """Pods that ended by themselves, or of a disruption that the rule on reasons matches."""
    included = frozenset(rule.get(fields.REASON_IN) or ())
    excluded = frozenset(rule.get(fields.REASON_NOT_IN) or ())

    def covers(pod: Pod) -> bool:
        reasons = pod_reason.of(pod)
        if not structs.is_true(pod.status.conditions, disruption_target.TARGET):
            return reasons == (pod_reason.NONE,)
        return (
            bool(included.intersection(reasons)) if included else not excluded.intersection(reasons)
        )

    return covers
