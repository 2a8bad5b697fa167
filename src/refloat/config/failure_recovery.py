# SPDX-License-Identifier: Apache-2.0
"""Reads `failureRecoveryPolicy` (KEP-6757), and refuses everything ambiguous.

A wrong word here ends pods by force or, worse, silently does not end them. So
Refloat guesses nothing and gives no period a default where the KEP has none.
Refloat also refuses a rule that would select objects without any labels,
because their owners have not opted in.
"""

from typing import Any

from refloat.config import fields
from refloat.policy.recovery.failure_recovery import (
    FIELD,
    AnnotationRule,
    Budget,
    FailureRecoveryPolicy,
    Mode,
    TaintNodeOutOfService,
    TerminatePod,
)

_TERMS = ("forcefulTerminationGracePeriod", "deleteAfter", "requireSelfFence")
_TERMINATE = "terminatePod"
_TAINT = "taintNodeOutOfService"
_TAINT_OF_THE_KEP = f"{_TAINT}Config"  # the KEP's name for the same action

NODE_GRACE = "nodeGracePeriod"

_DEFAULTS = FailureRecoveryPolicy()


def parse(value: Any) -> FailureRecoveryPolicy:
    """Check a decoded policy; None gives the defaults."""
    names = ("mode", "annotated", "rules", "budget", "holdAboveUnreachableNodes", NODE_GRACE)
    policy = fields.section({FIELD: value}, FIELD, "", names)
    terminate: list[TerminatePod] = []
    taint: list[TaintNodeOutOfService] = []
    for i, each in enumerate(fields.sequence(policy.get("rules"), f"{FIELD}.rules")):
        rule = _rule(each, f"{FIELD}.rules[{i}]")
        if isinstance(rule, TerminatePod):
            terminate.append(rule)
        else:
            taint.append(rule)
    mode = _mode(policy.get("mode"))
    annotated = fields.section(policy, "annotated", FIELD, ("namespaceSelector", *_TERMS))
    terms = _terms(annotated, f"{FIELD}.annotated")
    if (selector := annotated.get("namespaceSelector")) is not None:
        terms["namespaces"] = fields.selector(selector, f"{FIELD}.annotated.namespaceSelector")
    hold = policy.get("holdAboveUnreachableNodes")
    grace = policy.get(NODE_GRACE)
    return FailureRecoveryPolicy(
        mode=mode,
        annotated=AnnotationRule(**terms),
        terminate=tuple(terminate),
        taint=tuple(taint),
        budget=_budget(policy.get("budget")),
        hold_above_percent=_DEFAULTS.hold_above_percent
        if hold is None
        else fields.percent(hold, f"{FIELD}.holdAboveUnreachableNodes"),
        node_grace=None if grace is None else fields.duration(grace, f"{FIELD}.{NODE_GRACE}"),
    )


def _mode(value: Any) -> Mode:
    if value is None:
        return _DEFAULTS.mode
    if value not in ("Enforce", "Report"):
        raise fields.wrong(f"{FIELD}.mode", value, "'Enforce' or 'Report'")
    mode: Mode = value
    return mode


def _terms(section: dict[str, Any], path: str) -> dict[str, Any]:
    """The terms that annotations and rules share, as far as the section sets them."""
    period, delete_after, fence = (section.get(name) for name in _TERMS)
    terms: dict[str, Any] = {}
    if period is not None:
        terms["period"] = fields.duration(period, f"{path}.{_TERMS[0]}")
    if delete_after is not None:
        terms["delete_after"] = fields.duration(delete_after, f"{path}.{_TERMS[1]}", zero=True)
    if fence is not None:
        terms["require_self_fence"] = fields.flag(fence, f"{path}.{_TERMS[2]}")
    return terms


def _rule(value: Any, path: str) -> TerminatePod | TaintNodeOutOfService:
    rule = fields.mapping(value, path, (_TERMINATE, _TAINT, _TAINT_OF_THE_KEP))
    actions = [name for name, what in rule.items() if what is not None]
    if len(actions) != 1:
        raise fields.wrong(path, actions, f"exactly one of {_TERMINATE} and {_TAINT}")
    action = actions[0]
    if action == _TERMINATE:
        return _terminate(rule[action], f"{path}.{action}")
    return _taint(rule[action], f"{path}.{action}")


def _terminate(value: Any, path: str) -> TerminatePod:
    rule = fields.mapping(value, path, ("podLabelSelector", *_TERMS))
    where = f"{path}.podLabelSelector"
    if rule.get("podLabelSelector") is None:
        raise fields.wrong(where, None, "the labels of pods that are safe to fail")
    pods = fields.selector(rule["podLabelSelector"], where)
    if pods.matches({}):
        raise fields.wrong(
            where,
            rule["podLabelSelector"],
            "at least one label that a pod must have, as it would select pods without any",
        )
    terms = _terms(rule, path)
    if "period" not in terms:
        raise fields.wrong(f"{path}.{_TERMS[0]}", None, "a duration; it has no default")
    return TerminatePod(path, pods, **terms)


def _taint(value: Any, path: str) -> TaintNodeOutOfService:
    rule = fields.mapping(value, path, ("unreachableNodeTimeout", "nodeSelector", "allPods"))
    where = f"{path}.unreachableNodeTimeout"
    if rule.get("unreachableNodeTimeout") is None:
        raise fields.wrong(where, None, "a duration; it has no default")
    timeout = fields.duration(rule["unreachableNodeTimeout"], where)
    selector = rule.get("nodeSelector")
    nodes = fields.selector({} if selector is None else selector, f"{path}.nodeSelector")
    all_pods = rule.get("allPods") is not None and fields.flag(rule["allPods"], f"{path}.allPods")
    if all_pods and nodes.matches({}):
        raise fields.wrong(
            f"{path}.nodeSelector",
            selector,
            "at least one label that a node must have, because of allPods:"
            " it ends every pod of a node, with or without opt-in",
        )
    return TaintNodeOutOfService(path, timeout, nodes, all_pods)


def _budget(value: Any) -> Budget | None:
    if value is None:
        return None
    path = f"{FIELD}.budget"
    budget = fields.mapping(value, path, ("maxPods", "window"))
    pods = fields.count(budget.get("maxPods"), f"{path}.maxPods")
    return Budget(pods, fields.duration(budget.get("window"), f"{path}.window"))
