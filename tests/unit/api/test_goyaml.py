# SPDX-License-Identifier: Apache-2.0
"""YAML bodies are read as Kubernetes reads them, which is not as PyYAML does."""

from typing import Any

import pytest

from refloat.api import codec, errors, goyaml, schema
from tests.cases import cases

POD = schema.struct("v1", "Pod")
CONFIG_MAP = schema.struct("v1", "ConfigMap")
KEYS = ((1, "true"), (2, "5"))


def value(text: str) -> Any:
    return goyaml.parse(text.encode())[0]


@pytest.mark.parametrize(
    ("word", "want"),
    [
        *((word, True) for word in ("y", "Yes", "on", "true", "TRUE", "!!bool yes")),
        *((word, False) for word in ("n", "No", "off", "false")),
        *((word, None) for word in ("~", "null", "NULL", "", '!!null ""')),
        *(
            (word, 15)
            for word in ("15", "+15", "0xF", "0b1111", "0o17", "017", "1_5", "!!int '15'")
        ),
        *((word, 1000) for word in ("1e3", "1E3", "1000.0", "1000.")),
        ("-0x10", -16),
        (".5", 0.5),
        ("08", 8),
        ("18446744073709551615", 18446744073709551615),
        ("123456789012345678901", 123456789012345680000),
        ("1" + "0" * 300, 1e300),
        *((word, word) for word in ("9" * 5000, "-" + "9" * 5000, "0x" + "f" * 5000)),
        *((f"{zeros}17", 15) for zeros in ("0" * 5000, "0o" + "0" * 5000)),
        ("0b" + "0" * 5000 + "1111", 15),
        ("0" * 5000 + "8", 8),
        *((word, word) for word in ("1:30", "2020-01-01", "0o8", "0b2", "_1", "=", "1e400", "+")),
        ('"y"', "y"),
        ("!!str 5", "5"),
        ("!!binary aGk=", "hi"),
        ("!!timestamp 2020-01-01", "2020-01-01"),
    ],
)
def test_plain_words_have_their_values_in_version_1_1(word: str, want: Any) -> None:
    word_value = value(f"a: {word}")["a"]
    assert word_value == want
    assert type(word_value) is type(want)


@pytest.mark.parametrize(
    ("key", "want"),
    [("5", "5"), ("1.5", "1.5"), ("y", "true"), ("0x10", "16"), ("1e3", "1000"), ('"q"', "q")],
)
def test_keys_become_texts(key: str, want: str) -> None:
    assert value(f"{key}: v") == {want: "v"}


@pytest.mark.parametrize("body", ["", "# c\n", "null", "---\n"])
def test_an_empty_document_is_null(body: str) -> None:
    assert value(body) is None


def test_only_the_first_document_is_read() -> None:
    assert value("a: 1\n---\n[") == {"a": 1}


def test_members_are_sorted() -> None:
    assert list(value("b: 1\na: 1\n")) == ["a", "b"]


def test_merge_keys_are_followed() -> None:
    assert value("p: &x {a: 1, b: 1}\nq: {<<: *x, b: 2}")["q"] == {"a": 1, "b": 2}
    assert value("p: &x {a: 1}\nq: &y {a: 2, b: 2}\nr: {<<: [*x, *y]}")["r"] == {"a": 1, "b": 2}


def test_what_is_merged_in_later_wins_and_is_told_with_its_own_line() -> None:
    body = b"p: &x {a: 1}\nq: &z {a: 2, b: 2}\nr: {c: c, <<: *x, a: 3, <<: *z}\n"
    parsed, repeated = goyaml.parse(body)
    assert parsed["r"] == {"a": 2, "b": 2, "c": "c"}
    assert repeated == ['line 3: key "a" already set in map', 'line 2: key "a" already set in map']


def test_a_key_that_is_set_twice_is_told_with_the_line_of_its_value() -> None:
    _, repeated = goyaml.parse(b"a:\n  x: 1\n  x: 2\n5: 1\n5: 2\na:\n  y: 1\n")
    assert repeated == [
        'line 3: key "x" already set in map',
        "line 5: key 5 already set in map",
        'line 7: key "a" already set in map',
    ]


@cases(
    "body want",
    {
        "nothing": ("a: 1\nb: 1", []),
        "a key twice": ("a: 1\na: 2", ['line 2: key "a" already set in map']),
        "keys that are no texts": (
            "on: 1\n5: 1",
            [f"line {i}: key {each} is no text unless it is in quotes" for i, each in KEYS],
        ),
        "keys in quotes": ("'on': 1\n'5': 1", []),
        "what was merged in, anew": ("p: &x {a: 1}\nq: {<<: *x, a: 2}", []),
        "what was merged in, anew and twice": (
            "p: &x {a: 1}\nq: {<<: *x, a: 2, a: 3}",
            ['line 2: key "a" already set in map'],
        ),
        "what is merged in over a key": (
            "p: &x {a: 1}\nq: {a: 2, <<: *x}",
            ['line 1: key "a" already set in map'],
        ),
        "two merged in, the first wins": ("p: &x {a: 1}\nq: &y {a: 2}\nr: {<<: [*x, *y]}", []),
    },
)
def test_keys_that_may_not_mean_what_they_seem_to_are_told(body: str, want: list[str]) -> None:
    assert goyaml.parse_sure(body.encode()) == (value(body), want)


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ("a: b: c", "yaml: mapping values are not allowed in this context"),
        ("a:\n\t- b", "yaml: line 2: found character that cannot start any token"),
        ("%foo\n", "yaml: found unknown directive name"),
        ("a: *x", "yaml: unknown anchor 'x' referenced"),
        ('{"kind":"Pod"', "yaml: line 1: did not find expected ',' or '}'"),
        ('a: "x', "yaml: found unexpected end of stream"),
        ("a: !!binary x", "yaml: !!binary value contains invalid base64 data"),
        ("a: &x [*x]", "yaml: anchor 'x' value contains itself"),
        ("? [a]\n: b", 'yaml: invalid map key: []interface {}{"a"}'),
        ("~: v", 'unsupported map key of type: %!s(<nil>), key: <nil>, value: "v"'),
        ("<<: v", "yaml: map merge requires map or sequence of maps as the value"),
        ('key: "a"\n  b: c', "yaml: line 1: did not find expected key"),
        ("\x01", "yaml: control characters are not allowed"),
        ("a: .inf", "json: unsupported value: +Inf"),
        ("a: .nan", "json: unsupported value: NaN"),
        ("a: !!int 5.0", "yaml: cannot decode !!float `5.0` as a !!int"),
    ],
)
def test_what_cannot_be_read_is_told_in_gos_words(body: str, want: str) -> None:
    with pytest.raises(goyaml.YamlProblem) as error:
        value(body)
    assert str(error.value) == want


def test_aliases_of_aliases_are_bounded() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for level in range(1, 8):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]")
    with pytest.raises(goyaml.YamlProblem, match="excessive aliasing"):
        value("\n".join(lines))


def test_deep_nesting_is_bounded() -> None:
    with pytest.raises(goyaml.YamlProblem, match="max depth"):
        value("a: " + "[" * 20_000 + "]" * 20_000)


def test_a_body_is_refused_with_its_beginning_in_hexadecimal() -> None:
    with pytest.raises(errors.StatusError) as error:
        codec.decode(b"a: b: c", POD, media="yaml")
    assert error.value.message == (
        "the object provided is unrecognized (must be of type Pod): "
        "yaml: mapping values are not allowed in this context (613a20623a2063)"
    )


def test_repeated_keys_are_one_problem_each_and_one_text_when_strict() -> None:
    body = b"metadata:\n  name: a\nzeta: 1\nalpha: 1\nmetadata:\n  name: b\n"
    decoded = codec.decode(body, CONFIG_MAP, media="yaml")
    assert decoded.obj["metadata"] == {"name": "b"}
    assert decoded.problems == [
        'line 6: key "metadata" already set in map',
        'unknown field "alpha"',
        'unknown field "zeta"',
    ]
    assert decoded.strict == (
        'yaml: unmarshal errors:\n  line 6: key "metadata" already set in map, '
        'unknown field "alpha", unknown field "zeta"'
    )


def test_a_float_without_fraction_is_an_integer() -> None:
    decoded = codec.decode(b"spec: {priority: 1e3}", POD, media="yaml")
    assert decoded.obj["spec"]["priority"] == 1000
