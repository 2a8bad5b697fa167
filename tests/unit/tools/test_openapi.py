# SPDX-License-Identifier: Apache-2.0
"""The tables of the OpenAPI builder match the schema."""

from tools.openapi import descriptions, enums, responses

from refloat.api import gated_fields, schema


def known_structs() -> dict[str, schema.Struct]:
    structs: dict[str, schema.Struct] = {}
    waiting = [*schema.kinds().values(), gated_fields.struct("batch/v1", "Job")]
    waiting += [each for each in vars(responses).values() if isinstance(each, schema.Struct)]
    while waiting:
        struct = waiting.pop()
        if struct.name in structs:
            continue
        structs[struct.name] = struct
        for field in struct.fields.values():
            inner = field.type
            while isinstance(inner, schema.ListOf | schema.MapOf):
                inner = inner.element
            if isinstance(inner, schema.Struct):
                waiting.append(inner)
    return structs


def test_no_text_is_of_a_field_that_there_is_not() -> None:
    structs = known_structs()
    leaves = ("api.", "apis.", "runtime.", "util.")
    missing = [
        f"{struct}.{field}"
        for struct, texts in descriptions.texts().items()
        if not struct.startswith(leaves)
        for field in texts
        if struct not in structs or (field and field not in structs[struct].fields)
    ]
    assert missing == []


def test_texts_are_sentences() -> None:
    odd = [
        text
        for texts in descriptions.texts().values()
        for text in texts.values()
        if text != text.strip() or not text.endswith((".", "...")) or not text[0].isupper()
    ]
    assert odd == []


# The lists of values.


def test_listed_values_are_of_types_that_fields_have() -> None:
    used = set()
    for struct in known_structs().values():
        for field in struct.fields.values():
            inner = field.type
            while isinstance(inner, schema.ListOf | schema.MapOf):
                inner = inner.element
            if isinstance(inner, schema.Scalar):
                used.add(inner.go)
    assert set(enums.VALUES) <= used


def test_where_empty_is_a_value_it_is_listed() -> None:
    assert enums.VALUES["v1.HostPathType"][0] == ""
    assert "" not in enums.VALUES["v1.RestartPolicy"]
