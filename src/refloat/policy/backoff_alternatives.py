# SPDX-License-Identifier: Apache-2.0
"""The two other spellings of a backoffPolicy that KEP-3329's first design weighs.

Alternative 1 has a structure for each kind of condition, alternative 2 writes
conditions as label selectors do. The API takes neither; here they become rules
that it takes. Several expressions of one rule must all hold.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from refloat.api import code_ranges
from refloat.api.code_ranges import CodeRanges
from refloat.api.meta import Object
from refloat.api.validation import backoff_policy as fields
from refloat.policy import pod_reason
from refloat.policy.policy_conversion import Invalid, Refused

_CODES, _STATUS = "onContainerExitCode", "onPodStatus"

_OPERATORS = ("In", "NotIn")


def is_alternative(policy: Object) -> bool:
    """Whether any of its rules is spelled in one of these ways."""
    rules = policy.get("rules")
    return isinstance(rules, list) and any(
        isinstance(rule, dict) and not {"condition", _CODES, _STATUS}.isdisjoint(rule)
        for rule in rules
    )


def read(policy: Object) -> Object:
    """The policy with rules as the API takes them.

    `Invalid` with the field that is wrong, `Refused` where no rule says the same.
    """
    _only(policy, "backoffPolicy", "rules")
    rules = [
        _rule(rule, f"backoffPolicy.rules[{index}]") for index, rule in enumerate(policy["rules"])
    ]
    return {"rules": rules}


def _rule(rule: Any, path: str) -> Object:
    """Alternative 1 has its conditions under `condition` in Go, and without it in YAML."""
    if not isinstance(rule, dict):
        raise Invalid(f"{path}: expected an object, found {rule!r}")
    if not {"condition", _CODES, _STATUS}.intersection(rule):
        return rule
    made = dict(rule)
    if "condition" in made:
        inner = _object(made.pop("condition"), f"{path}.condition")
        _only(inner, f"{path}.condition", _CODES, _STATUS)
        for name in inner.keys() & made.keys():
            raise Invalid(f"{path}.condition.{name}: stands beside condition too")
        made |= inner
    _only(made, path, "action", _CODES, _STATUS)
    if (_CODES in made) == (_STATUS in made):
        raise Invalid(f"{path}: expected one of {_CODES} and {_STATUS}")
    action = {"action": made.get("action", "")}
    if _CODES in made:
        return action | _on_codes(_object(made[_CODES], f"{path}.{_CODES}"), f"{path}.{_CODES}")
    return action | _on_status(_object(made[_STATUS], f"{path}.{_STATUS}"), f"{path}.{_STATUS}")


def _on_codes(given: Object, path: str) -> Object:
    _only(given, path, "containerName", "valueIn", "valueNotIn", "valueExpressions")
    made: Object = {}
    if given.get("containerName") is not None:
        made["containerName"] = given["containerName"]
    if "valueExpressions" not in given:
        return made | _renamed(
            given, path, {"valueIn": fields.IN, "valueNotIn": fields.NOT_IN}, str
        )
    wanted, unwanted = _all_of(given, "valueExpressions", path)
    operator, codes = _merged(
        [_codes(each) for each in wanted], [_codes(each) for each in unwanted]
    )
    if not codes and operator == fields.IN:
        raise Refused(f"{path}.valueExpressions: no exit code is in all of them")
    return made | {operator: str(code_ranges.of(codes))}


def _on_status(given: Object, path: str) -> Object:
    _only(given, path, "reasonIn", "reasonNotIn", "reasonExpressions")
    if "reasonExpressions" not in given:
        names = {"reasonIn": fields.REASON_IN, "reasonNotIn": fields.REASON_NOT_IN}
        return _renamed(given, path, names, list)
    of_in, of_not_in = _all_of(given, "reasonExpressions", path)
    wanted, unwanted = [_reasons(each) for each in of_in], [_reasons(each) for each in of_not_in]
    operator, reasons = _merged(wanted, unwanted)
    if operator == fields.IN:
        _check_second_names(wanted, unwanted, reasons, f"{path}.reasonExpressions")
    if not reasons and operator == fields.IN:
        raise Refused(f"{path}.reasonExpressions: no reason is in all of them")
    name = fields.REASON_IN if operator == fields.IN else fields.REASON_NOT_IN
    return {name: reasons}


def _renamed(given: Object, path: str, names: dict[str, str], kind: type) -> Object:
    found = [name for name in names if given.get(name) is not None]
    if len(found) != 1:
        raise Invalid(f"{path}: expected one of {' and '.join(names)}")
    [name] = found
    value = given[name]
    if kind is str and isinstance(value, int):
        value = str(value)  # YAML takes a single code for a number
    if not isinstance(value, kind):
        raise Invalid(f"{path}.{name}: expected a {'text' if kind is str else 'list'}")
    return {names[name]: value}


_Expression = tuple[list[Any], str]
"""Its values, and where they stand."""


def _all_of(given: Object, name: str, path: str) -> tuple[list[_Expression], list[_Expression]]:
    """The expressions of a list: those with In, and those with NotIn."""
    found: dict[str, list[_Expression]] = {operator: [] for operator in _OPERATORS}
    if len(given.keys() - {"containerName"}) != 1:
        raise Invalid(f"{path}: {name} stands alone")
    listed = given[name]
    if not isinstance(listed, list) or not listed:
        raise Invalid(f"{path}.{name}: expected at least one expression")
    for index, each in enumerate(listed):
        where = f"{path}.{name}[{index}]"
        expression = _object(each, where)
        _only(expression, where, "operator", "values")
        operator, values = expression.get("operator"), expression.get("values")
        if operator not in _OPERATORS:
            raise Invalid(f"{where}.operator: {operator!r} is neither In nor NotIn")
        if not isinstance(values, list) or not values:
            raise Invalid(f"{where}.values: expected at least one value")
        found[operator].append((values, f"{where}.values"))
    return found["In"], found["NotIn"]


def _codes(expression: _Expression) -> CodeRanges:
    values, path = expression
    try:
        return code_ranges.parse(",".join(str(each) for each in values))
    except code_ranges.BadCodes as problem:
        raise Invalid(f"{path}: {problem}") from None


def _reasons(expression: _Expression) -> list[str]:
    values, path = expression
    for index, value in enumerate(values):
        if not isinstance(value, str):
            raise Invalid(f"{path}[{index}]: expected a text, found {value!r}")
    return values


def _check_second_names(
    wanted: list[list[str]], unwanted: list[list[str]], merged: list[str], path: str
) -> None:
    """Expressions can be about both names of one pod; a list knows either."""
    for names in pod_reason.SECOND_NAMES.items():
        meant = not any(map(set(names).isdisjoint, wanted))
        meant = meant and all(map(set(names).isdisjoint, unwanted))
        if meant is set(names).isdisjoint(merged):
            both = " and ".join(names)
            raise Refused(f"{path}: a pod can have both reasons {both}, of which no list says this")


def _merged(
    wanted: Sequence[Iterable[Any]], unwanted: Sequence[Iterable[Any]]
) -> tuple[str, list[Any]]:
    """One list for several that must all hold, in the order of the first."""
    never = dict.fromkeys(value for values in unwanted for value in values)
    if not wanted:
        return fields.NOT_IN, list(never)
    first, *others = (dict.fromkeys(values) for values in wanted)
    kept = [
        value for value in first if value not in never and all(value in other for other in others)
    ]
    return fields.IN, kept


def _object(value: Any, path: str) -> Object:
    if not isinstance(value, dict):
        raise Invalid(f"{path}: expected an object, found {value!r}")
    return value


def _only(given: Object, path: str, *names: str) -> None:
    for name in given:
        if name not in names:
            raise Invalid(f"{path}.{name}: unknown field; expected {', '.join(names)}")
