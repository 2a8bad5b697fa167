# SPDX-License-Identifier: Apache-2.0
"""The bookkeeping of server-side apply: times, order, first applies, resets, kubectl's past."""

from datetime import timedelta
from typing import Any

import pytest

from refloat.api.errors import StatusError
from refloat.apiserver import apply
from refloat.apiserver.apply import managed_fields
from tests.unit.apiserver.test_apply import (
    START,
    STRUCTS,
    ApplyStep,
    conflict,
    data,
    full,
    owners,
    update,
    write,
)


def apply_data(
    live: dict[str, Any] | None, manager: str, seconds: int, *, force: bool = False, **values: Any
) -> dict[str, Any]:
    now = START + timedelta(seconds=seconds)
    return write(live, "ConfigMap", ApplyStep(manager, data(**values), force=force), now)


def clock(obj: dict[str, Any]) -> list[tuple[str, str | None]]:
    return [(each["manager"], each.get("time")) for each in obj["metadata"]["managedFields"]]


def test_an_entry_is_written_as_kubernetes_writes_it() -> None:
    live = apply_data(None, "m", 0, x="1")
    assert live["metadata"]["managedFields"] == [
        {
            "manager": "m",
            "operation": "Apply",
            "apiVersion": "v1",
            "time": "2026-01-02T03:04:05Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:x": {}}},
        }
    ]


def test_applying_again_does_not_change_the_time() -> None:
    live = apply_data(None, "m", 0, x="1")
    assert apply_data(live, "m", 9, x="1") == live


def test_applying_a_change_changes_the_time() -> None:
    live = apply_data(apply_data(None, "m", 0, x="1"), "m", 9, x="2")
    assert clock(live) == [("m", "2026-01-02T03:04:14Z")]


def test_who_changes_nothing_gets_no_time() -> None:
    live = apply_data(apply_data(None, "m", 0, x="1"), "n", 9, x="1")
    assert clock(live) == [("n", None), ("m", "2026-01-02T03:04:05Z")]


def test_entries_are_sorted_by_operation_then_time_then_name() -> None:
    live = apply_data(None, "z", 0, a="1")
    live = apply_data(live, "b", 0, b="1")
    live = apply_data(live, "a", 1, c="1")
    body = data(a="1", b="1", c="1", d="1")
    live = write(live, "ConfigMap", update("0", body, {}), START)
    assert [name for name, _ in clock(live)] == ["b", "z", "a", "0"]


def test_a_conflict_names_its_causes() -> None:
    live = apply_data(None, "m", 0, x="1")
    with pytest.raises(StatusError) as error:
        apply_data(live, "n", 1, x="2")
    assert error.value.details == {
        "causes": [
            {"reason": "FieldManagerConflict", "message": 'conflict with "m"', "field": ".data.x"}
        ]
    }


def test_the_inputs_are_not_changed() -> None:
    live = apply_data(None, "m", 0, x="1", y="1")
    before = repr(live)
    apply_data(live, "m", 1, y="2")
    apply_data(live, "n", 1, force=True, x="2")
    assert repr(live) == before


def test_what_was_there_before_the_first_apply_has_an_owner() -> None:
    live = full("ConfigMap", {"metadata": {"labels": {"l": "1"}, "uid": "u"}, **data(x="1")})
    with pytest.raises(
        StatusError, match=r'conflict with "before-first-apply" using v1: \.data\.x'
    ):
        apply_data(live, "m", 1, x="2")
    live = apply_data(live, "m", 1, x="1", y="1")
    assert owners(live) == {
        "before-first-apply Update": ".data .data.x .metadata.labels .metadata.labels.l",
        "m": ".data.x .data.y",
    }


def test_writes_before_the_first_apply_are_not_tracked() -> None:
    step = update("u", data(x="1"), {})
    live = write(None, "ConfigMap", step, START)
    assert "managedFields" not in live["metadata"]
    live = write(live, "ConfigMap", update("u", data(x="2"), {}), START)
    assert "managedFields" not in live["metadata"]


@pytest.mark.parametrize("entries", [[], [{}]])
def test_an_empty_list_ends_the_tracking(entries: list[Any]) -> None:
    live = apply_data(None, "m", 0, x="1")
    new = full("ConfigMap", {"metadata": {"managedFields": entries}, **data(x="1")})
    done = write_managed(live, new)
    assert "managedFields" not in done["metadata"]


def owning(fields: object) -> list[Any]:
    """The entry of a manager of these fields."""
    kind = {"apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields}
    return [{"manager": "other", "operation": "Update", **kind}]


@pytest.mark.parametrize(
    "entries",
    [
        None,
        [{"manager": "m", "operation": "Bogus"}],
        owning({"data": {}}),
        owning({"f:data": {"k:x": {}}}),
        owning({"f:data": {"k:[1]": {}}}),
        owning({"f:data": {"v:": {}}}),
        owning({"f:data": {"i:x": {}}}),
        owning({"f:data": {f"i:{'9' * 5000}": {}}}),
        owning({"f:data": "x"}),
    ],
    ids=str,
)
def test_what_cannot_be_read_does_not_end_the_tracking(entries: Any) -> None:
    live = apply_data(None, "m", 0, x="1")
    new = full("ConfigMap", {"metadata": {"managedFields": entries}, **data(x="1")})
    assert owners(write_managed(live, new)) == {"m": ".data.x"}


def test_what_only_later_versions_know_is_left_out() -> None:
    live = apply_data(None, "m", 0, x="1", y="2")
    entries = owning({"f:data": {"f:y": {}, "z:new": {}}})
    new = full("ConfigMap", {"metadata": {"managedFields": entries}, **data(x="1", y="2")})
    assert owners(write_managed(live, new)) == {"other Update": ".data.y"}


def test_a_subresource_cannot_end_the_tracking() -> None:
    live = apply_data(None, "m", 0, x="1")
    new = full("ConfigMap", {"metadata": {"managedFields": []}, **data(x="1")})
    assert owners(write_managed(live, new, subresource="status")) == {"m": ".data.x"}


def write_managed(
    live: dict[str, Any], new: dict[str, Any], *, subresource: str = ""
) -> dict[str, Any]:
    return apply.track_update(
        live,
        new,
        manager="u",
        struct=STRUCTS["ConfigMap"],
        api_version="v1",
        subresource=subresource,
        now=START,
    )


def test_managed_fields_can_be_written_directly() -> None:
    live = apply_data(None, "m", 0, x="1")
    moved = [live["metadata"]["managedFields"][0] | {"manager": "n"}]
    new = full("ConfigMap", {"metadata": {"managedFields": moved}, **data(x="1")})
    assert owners(write_managed(live, new)) == {"n": ".data.x"}


def test_the_oldest_of_many_updaters_become_one() -> None:
    live = apply_data(None, "m", 0, x="1")
    values = {"x": "1"}
    for number in range(12):
        values[f"k{number:02}"] = "1"
        step = update(f"u{number:02}", data(**values), {})
        live = write(live, "ConfigMap", step, START + timedelta(seconds=number))
    managers = owners(live)
    assert len(managers) == 1 + managed_fields.MAX_UPDATERS
    assert managers["ancient-changes Update"] == ".data.k00 .data.k01 .data.k02"
    assert managers["u03 Update"] == ".data.k03"


LAST = "kubectl.kubernetes.io/last-applied-configuration"


def applied_by_client(last: str) -> dict[str, Any]:
    return full("ConfigMap", {"metadata": {"annotations": {LAST: last}}, **data(x="1", y="2")})


def test_kubectl_takes_over_from_its_own_client_side() -> None:
    last = '{"apiVersion":"v1","kind":"ConfigMap","data":{"x":"1","y":"2"},"metadata":{"name":"n"}}'
    live = apply_data(applied_by_client(last), "kubectl", 0, x="9<")
    assert live["data"] == {"x": "9<", "y": "2"}
    assert owners(live) == {
        "kubectl": ".data.x",
        "before-first-apply Update": (
            f".data .data.y .metadata.annotations .metadata.annotations.{LAST}"
        ),
    }
    assert live["metadata"]["annotations"][LAST] == (
        '{"apiVersion":"v1","data":{"x":"9\\u003c"},"kind":"ConfigMap","metadata":{"name":"n"}}\n'
    )


def test_kubectl_does_not_take_over_what_changed_since() -> None:
    last = '{"apiVersion":"v1","kind":"ConfigMap","data":{"x":"0","y":"2"},"metadata":{"name":"n"}}'
    with pytest.raises(StatusError) as error:
        apply_data(applied_by_client(last), "kubectl", 0, x="9", y="9")
    assert error.value.message == conflict('"before-first-apply" using v1: .data.x')


def test_others_do_not_take_over_from_kubectl() -> None:
    last = '{"apiVersion":"v1","kind":"ConfigMap","data":{"x":"1","y":"2"},"metadata":{"name":"n"}}'
    with pytest.raises(StatusError, match=r"conflict with \"before-first-apply\""):
        apply_data(applied_by_client(last), "m", 0, x="9")
