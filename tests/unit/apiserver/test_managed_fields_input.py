# SPDX-License-Identifier: Apache-2.0
"""What becomes of managedFields that a client sends; Kubernetes v1.36.3 was asked for each.

Kubernetes refuses none of them: unreadable entries are dropped.
"""

from typing import Any

from tests import apiserver_fixture
from tests.builders import config_map
from tests.cases import cases

MAPS = "/api/v1/namespaces/default/configmaps"
KNOWN: dict[str, Any] = {"f:data": {".": {}, "f:a": {}}}

# (fieldsV1, the field sets of the answer to a PUT, and to a merge patch)
CASES: dict[str, Any] = {
    "a text": ("x", [], []),
    "an empty text": ("", [], []),
    "a number": (5, [], []),
    "zero": (0, [], []),
    "true": (True, [], []),
    "false": (False, [], []),
    "an empty list": ([], [], []),
    "a list": ([1], [], []),
    "a number within": ({"f:data": 1}, [], []),
    "a list within": ({"f:data": {"f:a": [1]}}, [], []),
    "an empty set": ({}, [KNOWN], []),
    "null within": ({"f:data": None}, [KNOWN], []),
}


def entry(fields: object) -> dict[str, Any]:
    what = {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    return what | {"fieldsV1": fields}


def field_sets(answer: tuple[int, Any]) -> list[object]:
    code, obj = answer
    assert code == 200, obj
    return [each["fieldsV1"] for each in obj["metadata"].get("managedFields", [])]


@cases("fields want_put want_patch", CASES)
async def test_field_sets_that_are_none_are_dropped(
    fields: object, want_put: list[object], want_patch: list[object]
) -> None:
    world = await apiserver_fixture.started()
    await world.create(config_map("c"))
    changed = config_map("c", data={"a": "1"}, managedFields=[entry(fields)])
    patch = {"metadata": {"managedFields": [entry(fields)]}}
    merge = "application/merge-patch+json"
    async with world.served() as face:
        assert field_sets(await face.ask("PUT", f"{MAPS}/c", changed)) == want_put
        await world.create(config_map("d"))
        answer = await face.ask("PATCH", f"{MAPS}/d", patch, media=merge)
        assert field_sets(answer) == want_patch
