# SPDX-License-Identifier: Apache-2.0
"""What becomes of managedFields that a client sends; Kubernetes v1.36.3 was asked for each.

Kubernetes refuses none of them: unreadable entries are dropped.
"""

from typing import Any

import pytest

from tests import apiserver_fixture
from tests.builders import config_map

MAPS = "/api/v1/namespaces/default/configmaps"
KNOWN: dict[str, Any] = {"f:data": {".": {}, "f:a": {}}}

# (fieldsV1, the field sets of the answer to a PUT, and to a merge patch)
CASES: list[Any] = [
    pytest.param("x", [], [], id="a text"),
    pytest.param("", [], [], id="an empty text"),
    pytest.param(5, [], [], id="a number"),
    pytest.param(0, [], [], id="zero"),
    pytest.param(True, [], [], id="true"),
    pytest.param(False, [], [], id="false"),
    pytest.param([], [], [], id="an empty list"),
    pytest.param([1], [], [], id="a list"),
    pytest.param({"f:data": 1}, [], [], id="a number within"),
    pytest.param({"f:data": {"f:a": [1]}}, [], [], id="a list within"),
    pytest.param({}, [KNOWN], [], id="an empty set"),
    pytest.param({"f:data": None}, [KNOWN], [], id="null within"),
]


def entry(fields: object) -> dict[str, Any]:
    what = {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    return what | {"fieldsV1": fields}


def field_sets(answer: tuple[int, Any]) -> list[object]:
    code, obj = answer
    assert code == 200, obj
    return [each["fieldsV1"] for each in obj["metadata"].get("managedFields", [])]


@pytest.mark.parametrize(("fields", "want_put", "want_patch"), CASES)
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
