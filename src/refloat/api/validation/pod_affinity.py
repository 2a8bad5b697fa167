# SPDX-License-Identifier: Apache-2.0
"""Where a pod may run: affinity, tolerations, spreading over a topology."""

from collections import Counter

from refloat.api import go_internal_types, names
from refloat.api.meta import Object
from refloat.api.validation import meta
from refloat.api.validation.effects import NONE_NEW, Effects
from refloat.api.validation.rules import Errors

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

_ACTION = "whenUnsatisfiable"
_TOLERATION_OPERATORS = ("Equal", "Exists")
_COMPARISONS = ("Lt", "Gt")


def check_affinity(affinity: Object, path: str, errors: Errors) -> None:
    if node := affinity.get("nodeAffinity"):
        if (selector := node.get(REQUIRED)) is not None:
            check_node_selector(selector, f"{path}.nodeAffinity.{REQUIRED}", errors)
        for i, preferred in enumerate(node.get(PREFERRED) or ()):
            where = f"{path}.nodeAffinity.{PREFERRED}[{i}]"
            _check_weight(preferred, where, errors)
            term = preferred.get("preference") or {}
            _check_node_term(term, f"{where}.preference", errors, values_checked=False)
    for kind in ("podAffinity", "podAntiAffinity"):
        pods, where = affinity.get(kind) or {}, f"{path}.{kind}"
        for i, term in enumerate(pods.get(REQUIRED) or ()):
            _check_pod_term(term, f"{where}.{REQUIRED}[{i}]", errors)
        for i, preferred in enumerate(pods.get(PREFERRED) or ()):
            at, term = f"{where}.{PREFERRED}[{i}]", preferred.get("podAffinityTerm") or {}
            _check_weight(preferred, at, errors)
            _check_pod_term(term, f"{at}.podAffinityTerm", errors)


def check_node_selector(selector: Object, path: str, errors: Errors) -> None:
    """Terms of which a node must fit one."""
    terms = selector.get("nodeSelectorTerms")
    where = f"{path}.nodeSelectorTerms"
    if not terms:
        errors.required(where, "must have at least one node selector term")
        return
    for i, term in enumerate(terms):
        _check_node_term(term, f"{where}[{i}]", errors, values_checked=True)


def _check_node_term(term: Object, path: str, errors: Errors, *, values_checked: bool) -> None:
    for i, expression in enumerate(term.get("matchExpressions") or ()):
        where = f"{path}.matchExpressions[{i}]"
        meta.check_operator(expression, where, errors, _COMPARISONS)
        errors += meta.validate_label_key(expression.get("key", ""), f"{where}.key")
        if values_checked:
            values = expression.get("values") or ()
            errors += meta.label_value_errors(values, f"{where}.values")
    for i, expression in enumerate(term.get("matchFields") or ()):
        # The only field that a selector can have is the node's name.
        where, operator = f"{path}.matchFields[{i}]", expression.get("operator", "")
        key, values = expression.get("key", ""), expression.get("values") or ()
        if operator not in ("In", "NotIn"):
            errors.invalid(f"{where}.operator", go_internal_types.typed(operator), meta.NO_OPERATOR)
        elif len(values) != 1:
            detail = "must be only one value when `operator` is 'In' or 'NotIn'"
            errors.required(f"{where}.values", f"{detail} for node field selector")
        if key != "metadata.name":
            errors.invalid(f"{where}.key", key, "not a valid field selector key")
            continue
        for j, value in enumerate(values):
            errors.named(f"{where}.values[{j}]", value, names.dns_subdomain)


def _check_weight(preferred: Object, path: str, errors: Errors) -> None:
    if not 0 < (weight := preferred.get("weight", 0)) <= 100:
        errors.invalid(f"{path}.weight", weight, "must be in the range 1-100")


def _check_pod_term(term: Object, path: str, errors: Errors) -> None:
    for key in ("labelSelector", "namespaceSelector"):
        errors += meta.validate_label_selector(term.get(key), f"{path}.{key}")
    for namespace in term.get("namespaces") or ():
        errors.named(f"{path}.namespace", namespace, names.dns_label)
    _check_label_keys(term, path, errors)
    topology = term.get("topologyKey", "")
    if not topology:
        errors.required(f"{path}.topologyKey", "can not be empty")
    errors += meta.validate_label_key(topology, f"{path}.topologyKey")


def _check_label_keys(term: Object, path: str, errors: Errors) -> None:
    """Labels whose values the pod itself has."""
    match = term.get("matchLabelKeys") or ()
    mismatch = term.get("mismatchLabelKeys") or ()
    selector = term.get("labelSelector")
    for kind, keys in (("matchLabelKeys", match), ("mismatchLabelKeys", mismatch)):
        if keys and selector is None:
            detail = "must not be specified when labelSelector is not set"
            errors.forbidden(f"{path}.{kind}", detail)
            continue
        for i, key in enumerate(keys):
            errors += meta.validate_label_key(key, f"{path}.{kind}[{i}]")
    if match and selector is not None:
        last = {key: i for i, key in enumerate(match)}
        keys = set(selector.get("matchLabels") or ())
        for expression in selector.get("matchExpressions") or ():
            key = expression.get("key", "")
            if key in last and key in keys:
                detail = "exists in both matchLabelKeys and labelSelector"
                errors.invalid(f"{path}[{last[key]}]", key, detail)
            keys.add(key)
    for i, key in enumerate(match):
        if key in mismatch:
            detail = "exists in both matchLabelKeys and mismatchLabelKeys"
            errors.invalid(f"{path}.matchLabelKeys[{i}]", key, detail)


def check_tolerations(
    tolerations: list[Object], path: str, errors: Errors, effects: Effects = NONE_NEW
) -> None:
    for i, toleration in enumerate(tolerations):
        where = f"{path}[{i}]"
        key, operator = toleration.get("key", ""), toleration.get("operator", "")
        effect = toleration.get("effect", "")
        if key:
            errors += meta.validate_label_key(key, f"{where}.key")
        elif operator != "Exists":
            detail = (
                "operator must be Exists when `key` is empty, "
                'which means "match all values and all keys"'
            )
            errors.invalid(f"{where}.operator", go_internal_types.typed(operator), detail)
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            errors.invalid(f"{where}.effect", go_internal_types.typed(effect), detail)
        value = toleration.get("value", "")
        if operator in ("Equal", ""):
            if complaints := names.label_value(value):
                errors.invalid(f"{where}.operator", value, ";".join(complaints))
        elif operator not in _TOLERATION_OPERATORS:
            # The gate of the comparisons is off; Kubernetes lists them nevertheless.
            more = _COMPARISONS if operator in _COMPARISONS else ()
            value_text = go_internal_types.typed(operator)
            errors.not_supported(f"{where}.operator", value_text, (*_TOLERATION_OPERATORS, *more))
        elif value:
            detail = "value must be empty when `operator` is 'Exists'"
            errors.invalid(f"{where}.operator", value, detail)
        if effect:
            errors.one_of(f"{where}.effect", effect, effects.of(toleration))


def check_topology_spread(constraints: list[Object], path: str, errors: Errors) -> None:
    remaining = Counter(map(_spread, constraints))
    for i, constraint in enumerate(constraints):
        where = f"{path}[{i}]"
        remaining[_spread(constraint)] -= 1
        errors.positive(f"{where}.maxSkew", constraint.get("maxSkew", 0))
        if not constraint.get("topologyKey"):
            errors.required(f"{where}.topologyKey", "can not be empty")
        action = constraint.get(_ACTION, "")
        errors.one_of(f"{where}.{_ACTION}", action, ("DoNotSchedule", "ScheduleAnyway"))
        if remaining[_spread(constraint)]:  # an error for all but the last
            pair = f"{{{constraint.get('topologyKey', '')}, {action}}}"
            repeated = f"{where}.{{topologyKey, whenUnsatisfiable}}"
            errors.duplicate(repeated, pair)
        if (least := constraint.get("minDomains")) is not None:
            errors.positive(f"{where}.minDomains", least)
            if action != "DoNotSchedule":
                detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
                errors.invalid(f"{where}.minDomains", least, detail)
        for key in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            errors.one_of(f"{where}.{key}", constraint.get(key), ("Honor", "Ignore"))
        if constraint.get("matchLabelKeys"):
            _check_label_keys({**constraint, "mismatchLabelKeys": ()}, where, errors)
        selector = constraint.get("labelSelector")
        errors += meta.validate_label_selector(selector, f"{where}.labelSelector")


def _spread(constraint: Object) -> tuple[str, str]:
    return constraint.get("topologyKey", ""), constraint.get(_ACTION, "")
