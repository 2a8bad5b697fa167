# SPDX-License-Identifier: Apache-2.0
"""The two other notations of a backoffPolicy that KEP-3329's first design considers.

Alternative 1 has a structure for each kind of condition, alternative 2 writes conditions like
label selectors. The API accepts neither; this module converts them to rules that the API
accepts. All expressions of one rule must hold.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from refloat.api import code_ranges
from refloat.api.code_ranges import CodeRanges
from refloat.api.meta import Object
from refloat.api.validation import backoff_policy as fields
from refloat.policy.job import pod_reason
from refloat.policy.job.policy_conversion import InvalidPolicy, NotConvertible

_CODES, _STATUS = "onContainerExitCode", "onPodStatus"

_OPERATORS = ("In", "NotIn")


def is_alternative(policy: Object) -> bool:
    """Whether a rule of the policy uses one of these notations."""
    rules = policy.get("rules")
    return isinstance(rules, list) and any(
        isinstance(rule, dict) and not {"condition", _CODES, _STATUS}.isdisjoint(rule)
        for rule in rules
    )


def read(policy: Object) -> Object:
    """The policy with rules as the API accepts them.

    Raises `InvalidPolicy` with the wrong field, `NotConvertible` where no rule is equivalent.
    """
    _only(policy, "backoffPolicy", "rules")
    rules = [
        _rule(rule, f"backoffPolicy.rules[{index}]") for index, rule in enumerate(policy["rules"])
    ]
    return {"rules": rules}


def _rule(rule: Any, path: str) -> Object:
    """Alternative 1 has the field `condition` in Go, and not in YAML."""
    if not isinstance(rule, dict):
        raise InvalidPolicy(f"{path}: expected an object, found {rule!r}")
    if not {"condition", _CODES, _STATUS}.intersection(rule):
        return rule
    members = dict(rule)
    if "condition" in members:
        inner = _object(members.pop("condition"), f"{path}.condition")
        _only(inner, f"{path}.condition", _CODES, _STATUS)
        for name in inner.keys() & members.keys():
            raise InvalidPolicy(f"{path}.condition.{name}: stands beside condition too")
        members |= inner
    _only(members, path, "action", _CODES, _STATUS)
    if (_CODES in members) == (_STATUS in members):
        raise InvalidPolicy(f"{path}: expected one of {_CODES} and {_STATUS}")
    action = {"action": members.get("action", "")}
    if _CODES in members:
        return action | _on_codes(_object(members[_CODES], f"{path}.{_CODES}"), f"{path}.{_CODES}")
    return action | _on_status(_object(members[_STATUS], f"{path}.{_STATUS}"), f"{path}.{_STATUS}")


def _on_codes(condition: Object, path: str) -> Object:
    _only(condition, path, "containerName", "valueIn", "valueNotIn", "valueExpressions")
    rule: Object = {}
    if condition.get("containerName") is not None:
        rule["containerName"] = condition["containerName"]
    if "valueExpressions" not in condition:
        return rule | _renamed(
            condition, path, {"valueIn": fields.IN, "valueNotIn": fields.NOT_IN}, str
        )
    included, excluded = _all_of(condition, "valueExpressions", path)
    operator, codes = _merged(
        [_codes(each) for each in included], [_codes(each) for each in excluded]
    )
    if not codes and operator == fields.IN:
        raise NotConvertible(f"{path}.valueExpressions: no exit code is in all of them")
    return rule | {operator: str(code_ranges.of(codes))}


def _on_status(condition: Object, path: str) -> Object:
    _only(condition, path, "reasonIn", "reasonNotIn", "reasonExpressions")
    if "reasonExpressions" not in condition:
        new_names = {"reasonIn": fields.REASON_IN, "reasonNotIn": fields.REASON_NOT_IN}
        return _renamed(condition, path, new_names, list)
    of_in, of_not_in = _all_of(condition, "reasonExpressions", path)
    included, excluded = [_reasons(each) for each in of_in], [_reasons(each) for each in of_not_in]
    operator, reasons = _merged(included, excluded)
    if operator == fields.NOT_IN:
        return {fields.REASON_NOT_IN: reasons}
    # Refuse what needs both names of one reason: a list has either name.
    for names in pod_reason.SECOND_NAMES.items():
        has_both = not any(map(set(names).isdisjoint, included))
        has_both = has_both and all(map(set(names).isdisjoint, excluded))
        if has_both is set(names).isdisjoint(reasons):
            raise NotConvertible(
                f"{path}.reasonExpressions: a pod can have both reasons {' and '.join(names)}, "
                "of which no list says this"
            )
    if not reasons:
        raise NotConvertible(f"{path}.reasonExpressions: no reason is in all of them")
    return {fields.REASON_IN: reasons}


def _renamed(condition: Object, path: str, names: dict[str, str], kind: type) -> Object:
    present = [name for name in names if condition.get(name) is not None]
    if len(present) != 1:
        raise InvalidPolicy(f"{path}: expected one of {' and '.join(names)}")
    [name] = present
    value = condition[name]
    if kind is str and isinstance(value, int):
        value = str(value)  # YAML takes a single code for a number
    if not isinstance(value, kind):
        raise InvalidPolicy(f"{path}.{name}: expected a {'text' if kind is str else 'list'}")
    return {names[name]: value}


_Expression = tuple[list[Any], str]
"""Values, and their path."""


def _all_of(condition: Object, name: str, path: str) -> tuple[list[_Expression], list[_Expression]]:
    """The expressions of a list: those with In, and those with NotIn."""
    by_operator: dict[str, list[_Expression]] = {operator: [] for operator in _OPERATORS}
    if len(condition.keys() - {"containerName"}) != 1:
        raise InvalidPolicy(f"{path}: {name} stands alone")
    expressions = condition[name]
    if not isinstance(expressions, list) or not expressions:
        raise InvalidPolicy(f"{path}.{name}: expected at least one expression")
    for index, each in enumerate(expressions):
        where = f"{path}.{name}[{index}]"
        expression = _object(each, where)
        _only(expression, where, "operator", "values")
        operator, values = expression.get("operator"), expression.get("values")
        if operator not in _OPERATORS:
            raise InvalidPolicy(f"{where}.operator: {operator!r} is neither In nor NotIn")
        if not isinstance(values, list) or not values:
            raise InvalidPolicy(f"{where}.values: expected at least one value")
        by_operator[operator].append((values, f"{where}.values"))
    return by_operator["In"], by_operator["NotIn"]


def _codes(expression: _Expression) -> CodeRanges:
    values, path = expression
    try:
        return code_ranges.parse(",".join(str(each) for each in values))
    except code_ranges.BadCodes as problem:
        raise InvalidPolicy(f"{path}: {problem}") from None


def _reasons(expression: _Expression) -> list[str]:
    values, path = expression
    for index, value in enumerate(values):
        if not isinstance(value, str):
            raise InvalidPolicy(f"{path}[{index}]: expected a text, found {value!r}")
    return values


def _merged(
    included: Sequence[Iterable[Any]], excluded: Sequence[Iterable[Any]]
) -> tuple[str, list[Any]]:
    """One list for lists that must all hold, in the order of the first."""
    never = dict.fromkeys(value for values in excluded for value in values)
    if not included:
        return fields.NOT_IN, list(never)
    first, *others = (dict.fromkeys(values) for values in included)
    common = [
        value for value in first if value not in never and all(value in other for other in others)
    ]
    return fields.IN, common


def _object(value: Any, path: str) -> Object:
    if not isinstance(value, dict):
        raise InvalidPolicy(f"{path}: expected an object, found {value!r}")
    return value


def _only(obj: Object, path: str, *names: str) -> None:
    for name in obj:
        if name not in names:
            raise InvalidPolicy(f"{path}.{name}: unknown field; expected {', '.join(names)}")
