# SPDX-License-Identifier: Apache-2.0
"""What a request may make the server do is bounded, and grows no faster than the request."""

import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import yaml

from refloat.api import errors, fields, goyaml, schema, selectors
from refloat.apiserver import attributes, listing, negotiation, options, owner_references, uri
from refloat.apiserver.apply import field_sets
from refloat.apiserver.patch import element_order, json_patch, strategic
from tests import apiserver_fixture

POD = schema.struct("v1", "Pod")


# -- addresses --------------------------------------------------------------


def labels(count: int) -> str:
    return ",".join(f"!k{number}" for number in range(count))


def test_a_label_selector_has_a_bounded_number_of_terms() -> None:
    assert len(selectors.parse_labels(labels(200)).requirements) == 200
    with pytest.raises(errors.StatusError, match="at most 200 requirements") as error:
        selectors.parse_labels(labels(201))
    assert error.value.code == 400


def test_the_sets_of_a_label_selector_have_a_bounded_number_of_values() -> None:
    values = [f"v{number}" for number in range(5001)]
    selectors.parse_labels(f"a in ({','.join(values[:5000])})")
    for text in (f"a in ({','.join(values)})", f"a in ({','.join(values[:4999])}),b in (x,y)"):
        with pytest.raises(errors.StatusError, match="5000 values"):
            selectors.parse_labels(text)


def test_a_field_selector_has_a_bounded_number_of_terms() -> None:
    text = ",".join(f"metadata.name!=n{number}" for number in range(201))
    with pytest.raises(errors.StatusError, match="at most 200 terms"):
        selectors.parse_fields(text)


def test_rights_are_decided_without_reading_a_selector_that_is_too_long() -> None:
    text = "metadata.name=a," + ",".join(f"metadata.name!=n{number}" for number in range(999))
    request = attributes.of_request("GET", "/api/v1/pods", {"fieldSelector": text})
    assert (request.verb, request.name, request.fields.empty) == ("list", "", True)


@pytest.mark.parametrize("parse", [selectors.parse_labels, selectors.parse_fields])
def test_a_selector_has_a_bounded_length(parse: Callable[[str], object]) -> None:
    with pytest.raises(errors.StatusError, match="selector is too long"):
        parse("a=" + "b" * 200_000)


def test_a_request_target_has_a_bounded_length() -> None:
    uri.parse("/" + "a" * (uri.MAX_TARGET - 1))
    with pytest.raises(errors.StatusError) as error:
        uri.parse("/" + "a" * uri.MAX_TARGET)
    assert error.value.code == 414


def test_a_query_has_a_bounded_number_of_parameters() -> None:
    with pytest.raises(errors.StatusError, match="more than 10000 parameters"):
        uri.parse("/healthz?" + "a&" * 10_000)


def test_a_continue_token_has_a_bounded_length() -> None:
    with pytest.raises(errors.StatusError, match="continue key is not valid: it is too long"):
        listing.decode_token("a" * 5000)


# -- answers ----------------------------------------------------------------


def test_as_many_mistakes_are_told_as_a_person_can_read_and_the_rest_is_counted() -> None:
    mistakes = [fields.required(f"f[{number}]") for number in range(250)]
    status = errors.invalid("", "Pod", "x", mistakes).status()
    assert len(status["details"]["causes"]) == 100
    assert status["message"].endswith("f[99]: Required value, and 150 more]")


def test_a_few_mistakes_are_told_as_ever() -> None:
    error = errors.invalid("", "Pod", "x", [fields.required("a"), fields.required("b")])
    assert str(error) == 'Pod "x" is invalid: [a: Required value, b: Required value]'


def test_a_refusal_stays_small_whatever_it_quotes() -> None:
    value = "\x7f" * 3_000_000
    mistakes = [fields.invalid(f"f[{number}]", value, "no") for number in range(100)]
    body = msgspec.json.encode(errors.invalid("", "Pod", "x", mistakes).status())
    assert len(body) < 10_000_000


def test_a_manager_of_control_characters_is_refused_once_for_each_of_a_few() -> None:
    query = apiserver_fixture.query(fieldManager="\x01" * 80_000)
    with pytest.raises(errors.StatusError) as error:
        options.write_options(query, "CreateOptions")
    assert len((error.value.details or {})["causes"]) <= 100


def test_large_yaml_is_written_in_pieces_and_reads_the_same() -> None:
    texts = ("a", "yes", "two\nlines\n", "ends\n\n", "word " * 40, "")
    document = {
        "items": [
            {"name": f"n{number}", "of": {"text": texts[number % 6]}} for number in range(2000)
        ],
        "data": {f"k{number}": texts[number % 6] for number in range(3000)},
        "deep": {"er": [{"list": [{"a": number} for number in range(1500)]}, [], {}]},
        "last": "x...",
    }
    assert yaml.load(negotiation.as_yaml(document), Loader=yaml.CSafeLoader) == document


# -- documents --------------------------------------------------------------


def test_aliases_do_not_multiply_without_end() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for number in range(1, 7):
        aliases = ", ".join([f"*a{number - 1}"] * 10)
        lines.append(f"a{number}: &a{number} [{aliases}]")
    with pytest.raises(goyaml.YamlProblem, match="excessive aliasing"):
        goyaml.parse("\n".join(lines).encode())


def test_managed_fields_are_nested_no_deeper_than_objects_are() -> None:
    nested: dict[str, Any] = {}
    for _ in range(200):
        nested = {"f:a": nested}
    with pytest.raises(ValueError, match="nested too deep"):
        field_sets.decode(nested)


# -- the work is linear ------------------------------------------------------


@pytest.fixture
def keys_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often the key of a list's item was looked up."""
    count = [0]
    real = element_order.key_of

    def counted(item: Any, merge_key: str) -> Any:
        count[0] += 1
        return real(item, merge_key)

    monkeypatch.setattr(element_order, "key_of", counted)
    return count


def tolerant(count: int) -> dict[str, Any]:
    env = [{"name": f"E{number}", "value": "v"} for number in range(count)]
    return {"spec": {"containers": [{"name": "main", "env": env}]}}


def test_deletions_from_a_list_look_at_each_item_a_few_times(keys_read: list[int]) -> None:
    deletions = [{"$patch": "delete", "name": f"E{number}"} for number in range(4000)]
    patch = {"spec": {"containers": [{"name": "main", "env": deletions}]}}
    env = strategic.apply(tolerant(5000), patch, POD)["spec"]["containers"][0]["env"]
    assert [each["name"] for each in env] == [f"E{number}" for number in range(4000, 5000)]
    assert keys_read[0] < 10 * 9000


def test_items_without_a_place_stand_where_insertion_puts_them() -> None:
    for count in range(7):
        for places in itertools.product((None, 0, 1, 2), repeat=count):
            items = [f"{index}:{place}" for index, place in enumerate(places)]
            pairs = zip(items, places, strict=True)
            order: dict[element_order.Key, int] = {
                (str, item): place for item, place in pairs if place is not None
            }
            ordered = element_order._sorted(items, order, "")
            assert [item.partition(":")[2] for item in ordered] == list(map(str, inserted(places)))


def inserted(places: tuple[int | None, ...]) -> list[int | None]:
    """What Kubernetes' sort of a short list does, step by step."""
    result: list[int | None] = []
    for place in places:
        at = len(result)
        while at and (place is None or result[at - 1] is None or place < (result[at - 1] or 0)):
            at -= 1
        result.insert(at, place)
    return result


def test_copies_into_a_wide_object_do_not_copy_the_object() -> None:
    doc = {"data": {f"k{number}": "v" for number in range(1000)}, "other": {"a": {"b": 1}}}
    work = json_patch._PatchedDocument(doc)
    for number in range(100):
        work.perform({"op": "copy", "from": "/other/a", "path": f"/data/c{number}"})
    first = work.doc["data"]
    work.perform({"op": "copy", "from": "/other/a", "path": "/data/last"})
    assert work.doc["data"] is first  # was copied for this patch already


def test_what_was_copied_changes_in_one_place_alone() -> None:
    doc = {"a": {"b": {"c": 1}}}
    patched = json_patch.apply(
        doc,
        [
            {"op": "add", "path": "/a/b/d", "value": 2},
            {"op": "copy", "from": "/a/b", "path": "/e"},
            {"op": "replace", "path": "/a/b/c", "value": 9},
            {"op": "replace", "path": "/e/d", "value": 8},
        ],
    )
    assert patched == {"a": {"b": {"c": 9, "d": 2}}, "e": {"c": 1, "d": 8}}
    assert doc == {"a": {"b": {"c": 1}}}


def test_repeated_owners_are_dropped_in_their_order() -> None:
    owners = [{"uid": "1", "name": "a"}, {"name": "b", "uid": "2"}, {"name": "a", "uid": "1"}]
    obj = {"metadata": {"ownerReferences": owners}}
    call = apiserver_fixture.ServerFixture().call()
    owner_references.dedup_owners(call, obj)
    assert obj["metadata"]["ownerReferences"] == owners[:2]
    assert "duplicate UID(s) observed: 1" in call.warnings[0]
