# SPDX-License-Identifier: Apache-2.0
"""Where a pod may run: affinity, tolerations, spreading over a topology."""

from collections import Counter

from refloat.api import fields, internal, names
from refloat.api.meta import Object
from refloat.api.validation import meta
from refloat.api.validation import pod_rules as rules
from refloat.api.validation.effects import NONE_NEW, Effects
from refloat.api.validation.pod_rules import Errors

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

_OPERATOR = "not a valid selector operator"
_TOLERATION_OPERATORS = ("Equal", "Exists")
_COMPARISONS = ("Lt", "Gt")


def check_affinity(affinity: Object, path: str, errors: Errors) -> None:
    if node := affinity.get("nodeAffinity"):
        _check_node_affinity(node, f"{path}.nodeAffinity", errors)
    for kind in ("podAffinity", "podAntiAffinity"):
        if pods := affinity.get(kind):
            _check_pod_affinity(pods, f"{path}.{kind}", errors)


def _check_node_affinity(affinity: Object, path: str, errors: Errors) -> None:
    if (selector := affinity.get(REQUIRED)) is not None:
        check_node_selector(selector, f"{path}.{REQUIRED}", errors)
    for i, preferred in enumerate(affinity.get(PREFERRED) or ()):
        where = f"{path}.{PREFERRED}[{i}]"
        _check_weight(preferred, where, errors)
        term = preferred.get("preference") or {}
        _check_node_term(term, f"{where}.preference", errors, values_checked=False)


def check_node_selector(selector: Object, path: str, errors: Errors) -> None:
    """Terms of which a node must fit one."""
    terms = selector.get("nodeSelectorTerms")
    where = f"{path}.nodeSelectorTerms"
    if not terms:
        errors.append(fields.required(where, "must have at least one node selector term"))
        return
    for i, term in enumerate(terms):
        _check_node_term(term, f"{where}[{i}]", errors, values_checked=True)


def _check_node_term(term: Object, path: str, errors: Errors, *, values_checked: bool) -> None:
    for i, expression in enumerate(term.get("matchExpressions") or ()):
        where = f"{path}.matchExpressions[{i}]"
        _check_node_expression(expression, where, errors)
        if values_checked:
            values = expression.get("values") or ()
            errors += meta.label_value_errors(values, f"{where}.values")
    for i, expression in enumerate(term.get("matchFields") or ()):
        _check_node_field(expression, f"{path}.matchFields[{i}]", errors)


def _check_node_expression(expression: Object, path: str, errors: Errors) -> None:
    operator = expression.get("operator", "")
    values = expression.get("values") or ()
    if operator in ("In", "NotIn"):
        if not values:
            detail = "must be specified when `operator` is 'In' or 'NotIn'"
            errors.append(fields.required(f"{path}.values", detail))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            errors.append(fields.forbidden(f"{path}.values", detail))
    elif operator not in _COMPARISONS:
        errors.append(fields.invalid(f"{path}.operator", internal.typed(operator), _OPERATOR))
    elif len(values) != 1:
        detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
        errors.append(fields.required(f"{path}.values", detail))
    errors += meta.validate_label_key(expression.get("key", ""), f"{path}.key")


def _check_node_field(expression: Object, path: str, errors: Errors) -> None:
    """A node by its name, which is the only field that can be asked for."""
    operator = expression.get("operator", "")
    values = expression.get("values") or ()
    if operator not in ("In", "NotIn"):
        errors.append(fields.invalid(f"{path}.operator", internal.typed(operator), _OPERATOR))
    elif len(values) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        errors.append(fields.required(f"{path}.values", detail))
    key = expression.get("key", "")
    if key != "metadata.name":
        errors.append(fields.invalid(f"{path}.key", key, "not a valid field selector key"))
        return
    for i, value in enumerate(values):
        rules.named(errors, f"{path}.values[{i}]", value, names.dns_subdomain)


def _check_weight(preferred: Object, path: str, errors: Errors) -> None:
    if not 0 < (weight := preferred.get("weight", 0)) <= 100:
        errors.append(fields.invalid(f"{path}.weight", weight, "must be in the range 1-100"))


def _check_pod_affinity(affinity: Object, path: str, errors: Errors) -> None:
    for i, term in enumerate(affinity.get(REQUIRED) or ()):
        _check_pod_term(term, f"{path}.{REQUIRED}[{i}]", errors)
    for i, preferred in enumerate(affinity.get(PREFERRED) or ()):
        where = f"{path}.{PREFERRED}[{i}]"
        _check_weight(preferred, where, errors)
        term = preferred.get("podAffinityTerm") or {}
        _check_pod_term(term, f"{where}.podAffinityTerm", errors)


def _check_pod_term(term: Object, path: str, errors: Errors) -> None:
    for key in ("labelSelector", "namespaceSelector"):
        errors += meta.validate_label_selector(term.get(key), f"{path}.{key}")
    for namespace in term.get("namespaces") or ():
        rules.named(errors, f"{path}.namespace", namespace, names.dns_label)
    _check_label_keys(term, path, errors)
    topology = term.get("topologyKey", "")
    if not topology:
        errors.append(fields.required(f"{path}.topologyKey", "can not be empty"))
    errors += meta.validate_label_key(topology, f"{path}.topologyKey")


def _check_label_keys(term: Object, path: str, errors: Errors) -> None:
    """Labels whose values a term takes from the pod itself."""
    match = term.get("matchLabelKeys") or ()
    mismatch = term.get("mismatchLabelKeys") or ()
    selector = term.get("labelSelector")
    for kind, keys in (("matchLabelKeys", match), ("mismatchLabelKeys", mismatch)):
        if keys and selector is None:
            detail = "must not be specified when labelSelector is not set"
            errors.append(fields.forbidden(f"{path}.{kind}", detail))
            continue
        for i, key in enumerate(keys):
            errors += meta.validate_label_key(key, f"{path}.{kind}[{i}]")
    if match and selector is not None:
        _check_keys_repeated(list(match), selector, path, errors)
    for i, key in enumerate(match):
        if key in mismatch:
            detail = "exists in both matchLabelKeys and mismatchLabelKeys"
            errors.append(fields.invalid(f"{path}.matchLabelKeys[{i}]", key, detail))


def _check_keys_repeated(match: list[str], selector: Object, path: str, errors: Errors) -> None:
    """A selector that asks twice for a key which the pod's label was merged for."""
    last = {key: i for i, key in enumerate(match)}
    seen = set(selector.get("matchLabels") or ())
    for expression in selector.get("matchExpressions") or ():
        key = expression.get("key", "")
        if key in last and key in seen:
            detail = "exists in both matchLabelKeys and labelSelector"
            errors.append(fields.invalid(f"{path}[{last[key]}]", key, detail))
        seen.add(key)


def check_tolerations(
    tolerations: list[Object], path: str, errors: Errors, effects: Effects = NONE_NEW
) -> None:
    for i, toleration in enumerate(tolerations):
        _check_toleration(toleration, f"{path}[{i}]", errors, effects)


def _check_toleration(toleration: Object, path: str, errors: Errors, effects: Effects) -> None:
    key, operator = toleration.get("key", ""), toleration.get("operator", "")
    effect = toleration.get("effect", "")
    if key:
        errors += meta.validate_label_key(key, f"{path}.key")
    elif operator != "Exists":
        detail = (
            "operator must be Exists when `key` is empty, "
            'which means "match all values and all keys"'
        )
        errors.append(fields.invalid(f"{path}.operator", internal.typed(operator), detail))
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        errors.append(fields.invalid(f"{path}.effect", internal.typed(effect), detail))
    _check_toleration_value(operator, toleration.get("value", ""), path, errors)
    if effect:
        rules.one_of(errors, f"{path}.effect", effect, effects.of(toleration))


def _check_toleration_value(operator: str, value: str, path: str, errors: Errors) -> None:
    where = f"{path}.operator"
    if operator in ("Equal", ""):
        if complaints := names.label_value(value):
            errors.append(fields.invalid(where, value, ";".join(complaints)))
    elif operator == "Exists":
        if value:
            detail = "value must be empty when `operator` is 'Exists'"
            errors.append(fields.invalid(where, value, detail))
    else:
        # The comparisons have a gate that is off; they are named all the same.
        more = _COMPARISONS if operator in _COMPARISONS else ()
        supported = (*_TOLERATION_OPERATORS, *more)
        errors.append(fields.not_supported(where, internal.typed(operator), supported))


def check_topology_spread(constraints: list[Object], path: str, errors: Errors) -> None:
    left = Counter(map(_spread, constraints))
    for i, constraint in enumerate(constraints):
        where = f"{path}[{i}]"
        left[_spread(constraint)] -= 1
        _check_spread(constraint, where, errors)
        if left[_spread(constraint)]:  # told of all but the last
            pair = f"{{{constraint.get('topologyKey', '')}, {constraint.get(_ACTION, '')}}}"
            repeated = f"{where}.{{topologyKey, whenUnsatisfiable}}"
            errors.append(fields.duplicate(repeated, pair))
        _check_spread_options(constraint, where, errors)


def _spread(constraint: Object) -> tuple[str, str]:
    return constraint.get("topologyKey", ""), constraint.get(_ACTION, "")


_ACTION = "whenUnsatisfiable"


def _check_spread(constraint: Object, path: str, errors: Errors) -> None:
    rules.positive(errors, f"{path}.maxSkew", constraint.get("maxSkew", 0))
    if not constraint.get("topologyKey"):
        errors.append(fields.required(f"{path}.topologyKey", "can not be empty"))
    action = constraint.get(_ACTION, "")
    rules.one_of(errors, f"{path}.{_ACTION}", action, ("DoNotSchedule", "ScheduleAnyway"))


def _check_spread_options(constraint: Object, path: str, errors: Errors) -> None:
    action = constraint.get(_ACTION, "")
    if (least := constraint.get("minDomains")) is not None:
        rules.positive(errors, f"{path}.minDomains", least)
        if action != "DoNotSchedule":
            detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
            errors.append(fields.invalid(f"{path}.minDomains", least, detail))
    for key in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if (policy := constraint.get(key)) is not None:
            rules.one_of(errors, f"{path}.{key}", policy, ("Honor", "Ignore"))
    if constraint.get("matchLabelKeys"):
        _check_label_keys({**constraint, "mismatchLabelKeys": ()}, path, errors)
    selector = constraint.get("labelSelector")
    errors += meta.validate_label_selector(selector, f"{path}.labelSelector")
