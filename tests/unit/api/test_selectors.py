# SPDX-License-Identifier: Apache-2.0
"""Selectors; the error texts are a Kubernetes API server's."""

from typing import Any

import pytest

from refloat.api import selectors
from refloat.api.errors import StatusError

NAME = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or "
    "'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
INTEGER = "for 'Gt', 'Lt' operators, the value must be an integer"
UNREADABLE = "unable to parse requirement: "

OBJECTS: dict[str, dict[str, str]] = {
    "none": {},
    "empty": {"a": ""},
    "x": {"a": "x"},
    "y": {"a": "y", "b": "1"},
    "5": {"a": "5"},
    "in": {"in": "a"},
}

MATCHES = [
    ("", "none empty x y 5 in", ""),
    ("  ", "none empty x y 5 in", ""),
    ("a", "empty x y 5", "a"),
    ("!a", "none in", "!a"),
    ("a=", "empty", "a="),
    ("a=x", "x", "a=x"),
    ("a == x", "x", "a==x"),
    ("a!=x", "none empty y 5 in", "a!=x"),
    ("a in (y,x)", "x y", "a in (x,y)"),
    ("a in()", "empty", "a in ()"),
    ("a in (,)", "empty", "a in ()"),
    ("a in (x,)", "empty x", "a in (,x)"),
    ("a in (x,,y)", "empty x y", "a in (,x,y)"),
    ("a notin (x,y)", "none empty 5 in", "a notin (x,y)"),
    ("a>4", "5", "a>4"),
    ("a<6", "5", "a<6"),
    ("a>5", "", "a>5"),
    ("b,a", "y", "a,b"),
    ("a=x,a=y", "", "a=x,a=y"),
    ("a\t=\nx , !b", "x", "a=x,!b"),
    ("in", "in", "in"),
    ("in in (a)", "in", "in in (a)"),
    ("notin", "", "notin"),
    ("a=in", "", "a=in"),
]


@pytest.mark.parametrize(("text", "want", "canonical"), MATCHES)
def test_a_label_selector_picks_objects(text: str, want: str, canonical: str) -> None:
    selector = selectors.parse_labels(text)
    picked = [name for name, labels in OBJECTS.items() if selector.matches(labels)]
    assert picked == want.split()
    assert str(selector) == canonical
    assert str(selectors.parse_labels(canonical)) == canonical


LABEL_ERRORS = [
    ("a in (", UNREADABLE + "found '', expected: ',', ')' or identifier"),
    ("a in (x", UNREADABLE + "found '', expected: ',' or ')'"),
    ("a in (b c", UNREADABLE + "found 'c', expected: ',' or ')'"),
    ("a in (b,=)", UNREADABLE + "found '=', expected: ',', or identifier"),
    ("a in (,", UNREADABLE + "found '', expected: ',', or identifier"),
    ("a in (=)", UNREADABLE + "found '=', expected: ',', ')' or identifier"),
    ("a in x", UNREADABLE + "found 'x' expected: '('"),
    ("a notin", UNREADABLE + "found '' expected: '('"),
    ("a in (b)c", "found 'c', expected: ',' or 'end of string'"),
    ("a in (x))", "found ')', expected: ',' or 'end of string'"),
    ("a b", UNREADABLE + "found 'b', expected: in, notin, =, ==, !=, gt, lt"),
    ("a!b", UNREADABLE + "found '!', expected: in, notin, =, ==, !=, gt, lt"),
    ("a=(b)", UNREADABLE + "found '(', expected: identifier"),
    ("a=!b", UNREADABLE + "found '!', expected: identifier"),
    ("a>=1", UNREADABLE + "found '=', expected: identifier"),
    ("!", UNREADABLE + "found '', expected: identifier"),
    ("!!a", UNREADABLE + "found '!', expected: identifier"),
    ("!a=b", "found '=', expected: ',' or 'end of string'"),
    ("a=b=c", "found '=', expected: ',' or 'end of string'"),
    ("a=b,", "found '', expected: identifier after ','"),
    ("a,,b", "found ',', expected: identifier after ','"),
    (",", "found ',', expected: !, identifier, or 'end of string'"),
    ("==", "found '==', expected: !, identifier, or 'end of string'"),
    ("(a)", "found '(', expected: !, identifier, or 'end of string'"),
    ("-a", f'{UNREADABLE}<nil>: Invalid value: "-a": {NAME}'),
    ("-a in (", f'{UNREADABLE}<nil>: Invalid value: "-a": {NAME}'),
    ("!é", f'{UNREADABLE}<nil>: Invalid value: "é": {NAME}'),
    ("/a=b", f'{UNREADABLE}<nil>: Invalid value: "/a": prefix part must be non-empty'),
    ("a=-b", f'{UNREADABLE}values[0][a]: Invalid value: "-b": {VALUE}'),
    (
        "a in (b,-d,-c)",
        (
            f'{UNREADABLE}[values[0][a]: Invalid value: "-c": {VALUE}, '
            f'values[1][a]: Invalid value: "-d": {VALUE}]'
        ),
    ),
    (
        "a=" + "x" * 64,
        f'{UNREADABLE}values[0][a]: Invalid value: "{"x" * 64}": must be no more than 63 bytes',
    ),
    ("a>x", f'{UNREADABLE}values[0]: Invalid value: "x": {INTEGER}'),
    ("a>1.5", f'{UNREADABLE}values[0]: Invalid value: "1.5": {INTEGER}'),
    ("a<", f'{UNREADABLE}values[0]: Invalid value: "": {INTEGER}'),
    ("a>-1", f'{UNREADABLE}values[0][a]: Invalid value: "-1": {VALUE}'),
]


@pytest.mark.parametrize(("text", "want"), LABEL_ERRORS)
def test_a_label_selector_that_cannot_be_read_is_a_bad_request(text: str, want: str) -> None:
    with pytest.raises(StatusError) as error:
        selectors.parse_labels(text)
    assert (error.value.code, error.value.reason, error.value.message) == (400, "BadRequest", want)


def expression(operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "a", "operator": operator, "values": list(values)}]}


OBJECT_MATCHES: list[tuple[dict[str, Any] | None, str]] = [
    (None, ""),
    ({}, "none empty x y 5 in"),
    ({"matchLabels": {"a": "y", "b": "1"}}, "y"),
    (expression("In", "x", "y"), "x y"),
    (expression("NotIn", "x", "y"), "none empty 5 in"),
    (expression("Exists"), "empty x y 5"),
    (expression("DoesNotExist"), "none in"),
    ({"matchLabels": {"b": "1"}, **expression("In", "x", "y")}, "y"),
]


@pytest.mark.parametrize(("selector", "want"), OBJECT_MATCHES)
def test_a_selector_of_a_spec_picks_objects(selector: dict[str, Any] | None, want: str) -> None:
    compiled = selectors.from_object(selector)
    assert [name for name, each in OBJECTS.items() if compiled.matches(each)] == want.split()


def test_no_selector_is_not_an_empty_selector() -> None:
    assert not selectors.from_object(None).empty
    assert selectors.from_object({}).empty


def test_an_unknown_operator_is_named() -> None:
    with pytest.raises(StatusError, match='"Gt" is not a valid label selector operator'):
        selectors.from_object(expression("Gt", "1"))


PODS = {
    "p": {"metadata.name": "p", "spec.nodeName": "n"},
    "q": {"metadata.name": "q", "spec.nodeName": ""},
    ",=\\": {"metadata.name": ",=\\"},
}

FIELD_MATCHES = [
    ("", "p q ,=\\"),
    (",", "p q ,=\\"),
    ("=", "p q ,=\\"),
    ("!=", "p q ,=\\"),
    ("metadata.name=p", "p"),
    ("metadata.name==p,", "p"),
    ("metadata.name!=p", "q ,=\\"),
    ("spec.nodeName=", "q ,=\\"),
    ("spec.nodeName!=", "p"),
    ("spec.nodeName=n,metadata.name=q", ""),
    ("metadata.name=\\,\\=\\\\", ",=\\"),
]


@pytest.mark.parametrize(("text", "want"), FIELD_MATCHES)
def test_a_field_selector_picks_objects(text: str, want: str) -> None:
    selector = selectors.parse_fields(text)
    assert [name for name, each in PODS.items() if selector.matches(each)] == want.split()
    assert selectors.parse_fields(str(selector)).terms == selector.terms


FIELD_ERRORS = [
    ("a", "invalid selector: 'a'; can't understand 'a'"),
    ("a>1", "invalid selector: 'a>1'; can't understand 'a>1'"),
    ("z=1,b", "invalid selector: 'z=1,b'; can't understand 'b'"),
    ("a=b\\x", "invalid field selector: invalid escape sequence: \\x"),
    ("a=b\\", "invalid field selector: invalid escape sequence: \\"),
    ("a=b=c", "invalid field selector: unescaped character in value: 61"),
    ("a!==b", "invalid field selector: unescaped character in value: 61"),
    ("x\\=y=z", "invalid field selector: unescaped character in value: 61"),
]


@pytest.mark.parametrize(("text", "want"), FIELD_ERRORS)
def test_a_field_selector_that_cannot_be_read_is_a_bad_request(text: str, want: str) -> None:
    with pytest.raises(StatusError) as error:
        selectors.parse_fields(text)
    assert (error.value.code, error.value.reason, error.value.message) == (400, "BadRequest", want)


def test_fields_are_asked_about_in_sorted_order() -> None:
    assert selectors.parse_fields("b=1,a=2").labels == ("a", "b")


def test_a_field_is_pinned_by_equality_only() -> None:
    selector = selectors.parse_fields("a=1,b!=2")
    assert [selector.pinned(label) for label in "abc"] == ["1", "", ""]


def test_fields_can_be_renamed() -> None:
    renamed = selectors.parse_fields("a=1,b!=2").renamed({"a": "x"})
    assert str(renamed) == "x=1,b!=2"


def test_comparison_with_thousands_of_digits_is_refused_and_not_a_crash() -> None:
    with pytest.raises(StatusError, match=INTEGER) as error:
        selectors.parse_labels("a>" + "9" * 5000)
    assert error.value.code == 400
