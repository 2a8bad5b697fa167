# SPDX-License-Identifier: Apache-2.0
"""What holds for the normal form of every object, and for every body."""

import contextlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from refloat.api import codec, errors, schema
from refloat.api.meta import Object

CONFIG_MAP = schema.struct("v1", "ConfigMap")
MEDIA: tuple[codec.Media, ...] = ("json", "yaml")


def values(of: schema.Type, depth: int) -> st.SearchStrategy[Any]:
    if isinstance(of, schema.Struct):
        return structs(of, depth)
    if isinstance(of, schema.ListOf):
        return st.lists(values(of.element, depth), max_size=2)
    if isinstance(of, schema.MapOf):
        return st.dictionaries(st.text(max_size=3), values(of.element, depth), max_size=2)
    return {
        "string": st.text(max_size=3),
        "bool": st.booleans(),
        "int32": st.integers(-(1 << 31), (1 << 31) - 1),
        "int64": st.integers(-(1 << 63), (1 << 63) - 1),
        "quantity": st.sampled_from(["0", "1", "1.5", "1024Mi", 5]),
        "time": st.sampled_from(["2020-01-01T00:00:00Z", "2020-01-01T00:00:00+01:00"]),
        "microtime": st.just("2020-01-01T00:00:00.000000Z"),
        "bytes": st.sampled_from(["", "YQ=="]),
        "intorstring": st.integers(0, 9) | st.text(max_size=2),
        "fieldsv1": st.just({"f:a": {}}),
    }[of.kind]


def structs(of: schema.Struct, depth: int) -> st.SearchStrategy[Object]:
    fields = of.fields if depth else {}
    field_strategies = (
        st.lists(st.sampled_from(sorted(fields)), unique=True, max_size=4)
        if fields
        else st.just([])
    )
    return field_strategies.flatmap(
        lambda names: st.fixed_dictionaries(
            {name: st.none() | values(fields[name].type, depth - 1) for name in names}
        )
    )


KINDS = st.sampled_from(sorted(schema.kinds()))
OBJECTS = KINDS.flatmap(
    lambda kind: st.tuples(st.just(schema.kinds()[kind]), structs(schema.kinds()[kind], 5))
)


def without_kind(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}


@given(OBJECTS)
def test_converting_again_changes_nothing(sample: tuple[schema.Struct, Object]) -> None:
    struct, obj = sample
    once = codec.convert(without_kind(obj), struct)
    again = codec.convert(once.obj, struct)
    assert (again.obj, again.problems) == (once.obj, [])


@given(OBJECTS)
def test_what_is_encoded_is_decoded_alike(sample: tuple[schema.Struct, Object]) -> None:
    struct, obj = sample
    once = codec.convert(without_kind(obj), struct).obj
    assert codec.decode(codec.encode(once), struct).obj == once


@given(OBJECTS)
def test_the_slow_way_gives_the_same(sample: tuple[schema.Struct, Object]) -> None:
    struct, obj = sample
    plain = without_kind(obj)
    odd = codec.decode(codec.encode({**plain, "unknown": 1}), struct)
    assert odd.problems == ['unknown field "unknown"']
    assert odd.obj == codec.convert(plain, struct).obj


@given(st.binary(max_size=60) | st.text('{}[]",:0123456789.eE+-tfn\\u x', max_size=30))
def test_any_bytes_are_read_or_refused_and_nothing_else(body: bytes | str) -> None:
    raw = body if isinstance(body, bytes) else body.encode()
    for media in MEDIA:
        with contextlib.suppress(errors.StatusError):
            codec.decode(raw, CONFIG_MAP, media=media)
