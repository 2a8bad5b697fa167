# SPDX-License-Identifier: Apache-2.0
"""Reads `failureRecoveryPolicy` (KEP-6757), and refuses what is not meant for sure.

A wrong word here ends pods by force or, worse, silently does not: so nothing
is guessed, no period has a default where the KEP has none, and a rule that
would select what has no labels at all is refused: nobody opted in for that.
"""

from typing import Any

from refloat.config import fields
from refloat.policy.failure_recovery import (
    FIELD,
    Annotated,
    Budget,
    FailureRecoveryPolicy,
    Mode,
    TaintNodeOutOfService,
    TerminatePod,
)

_TERMS = ("forcefulTerminationGracePeriod", "deleteAfter", "requireSelfFence")
_TERMINATE = "terminatePod"
_TAINT = "taintNodeOutOfService"
_TAINT_OF_THE_KEP = f"{_TAINT}Config"  # the same, under the KEP's name

NODE_GRACE = "nodeGracePeriod"

_DEFAULTS = FailureRecoveryPolicy()


def parse(value: Any) -> FailureRecoveryPolicy:
    """Check a decoded policy; without one everything is by default."""
    known = ("mode", "annotated", "rules", "budget", "holdAboveUnreachableNodes", NODE_GRACE)
    found = fields.section({FIELD: value}, FIELD, "", known)
    terminate: list[TerminatePod] = []
    taint: list[TaintNodeOutOfService] = []
    for i, each in enumerate(fields.sequence(found.get("rules"), f"{FIELD}.rules")):
        rule = _rule(each, f"{FIELD}.rules[{i}]")
        if isinstance(rule, TerminatePod):
            terminate.append(rule)
        else:
            taint.append(rule)
    hold = found.get("holdAboveUnreachableNodes")
    grace = found.get(NODE_GRACE)
    return FailureRecoveryPolicy(
        mode=_mode(found.get("mode")),
        annotated=_annotated(found),
        terminate=tuple(terminate),
        taint=tuple(taint),
        budget=_budget(found.get("budget")),
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


def _annotated(policy: dict[str, Any]) -> Annotated:
    path = f"{FIELD}.annotated"
    found = fields.section(policy, "annotated", FIELD, ("namespaceSelector", *_TERMS))
    made = Annotated(**_terms(found, path))
    if found.get("namespaceSelector") is None:
        return made
    selected = fields.selector(found["namespaceSelector"], f"{path}.namespaceSelector")
    return Annotated(made.period, selected, made.delete_after, made.require_self_fence)


def _terms(found: dict[str, Any], path: str) -> dict[str, Any]:
    """What annotation and rule have in common, as far as it is said."""
    period, delete_after, fence = (found.get(name) for name in _TERMS)
    terms: dict[str, Any] = {}
    if period is not None:
        terms["period"] = fields.duration(period, f"{path}.{_TERMS[0]}")
    if delete_after is not None:
        terms["delete_after"] = fields.duration(delete_after, f"{path}.{_TERMS[1]}", zero=True)
    if fence is not None:
        terms["require_self_fence"] = fields.flag(fence, f"{path}.{_TERMS[2]}")
    return terms


def _rule(value: Any, path: str) -> TerminatePod | TaintNodeOutOfService:
    found = fields.mapping(value, path, (_TERMINATE, _TAINT, _TAINT_OF_THE_KEP))
    actions = [name for name, what in found.items() if what is not None]
    if len(actions) != 1:
        raise fields.wrong(path, actions, f"exactly one of {_TERMINATE} and {_TAINT}")
    action = actions[0]
    if action == _TERMINATE:
        return _terminate(found[action], f"{path}.{action}")
    return _taint(found[action], f"{path}.{action}")


def _terminate(value: Any, path: str) -> TerminatePod:
    found = fields.mapping(value, path, ("podLabelSelector", *_TERMS))
    where = f"{path}.podLabelSelector"
    if found.get("podLabelSelector") is None:
        raise fields.wrong(where, None, "the labels of pods that are safe to fail")
    pods = fields.selector(found["podLabelSelector"], where)
    if pods.matches({}):
        raise fields.wrong(
            where,
            found["podLabelSelector"],
            "at least one label that a pod must have, as it would select pods without any",
        )
    terms = _terms(found, path)
    if "period" not in terms:
        raise fields.wrong(f"{path}.{_TERMS[0]}", None, "a duration; it has no default")
    return TerminatePod(path, pods, **terms)


def _taint(value: Any, path: str) -> TaintNodeOutOfService:
    found = fields.mapping(value, path, ("unreachableNodeTimeout", "nodeSelector", "allPods"))
    where = f"{path}.unreachableNodeTimeout"
    if found.get("unreachableNodeTimeout") is None:
        raise fields.wrong(where, None, "a duration; it has no default")
    timeout = fields.duration(found["unreachableNodeTimeout"], where)
    selector = found.get("nodeSelector")
    nodes = fields.selector({} if selector is None else selector, f"{path}.nodeSelector")
    all_pods = found.get("allPods") is not None and fields.flag(found["allPods"], f"{path}.allPods")
    if all_pods and nodes.matches({}):
        raise fields.wrong(
            f"{path}.nodeSelector",
            selector,
            "at least one label that a node must have, because of allPods:"
            " it ends every pod of a node, whoever opted in",
        )
    return TaintNodeOutOfService(path, timeout, nodes, all_pods)


def _budget(value: Any) -> Budget | None:
    if value is None:
        return None
    path = f"{FIELD}.budget"
    found = fields.mapping(value, path, ("maxPods", "window"))
    pods = fields.count(found.get("maxPods"), f"{path}.maxPods")
    return Budget(pods, fields.duration(found.get("window"), f"{path}.window"))
