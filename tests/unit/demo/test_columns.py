# SPDX-License-Identifier: Apache-2.0
"""A Table as kubectl lays it out."""

from typing import Any

from refloat.demo import columns


def _table(*rows: list[Any]) -> dict[str, Any]:
    return {
        "columnDefinitions": [
            {"name": "Name", "priority": 0},
            {"name": "Count", "priority": 0},
            {"name": "Node", "priority": 1},
        ],
        "rows": [{"cells": cells} for cells in rows],
    }


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    lines = columns.layout(_table(["a", 1, "n"], ["long-name", 22, "n"]))
    assert lines == ["NAME        COUNT", "a           1", "long-name   22"]


def test_columns_of_the_wide_form_are_left_out() -> None:
    assert "NODE" not in columns.layout(_table(["a", 1, "n"]))[0]


def test_an_empty_table_has_a_header() -> None:
    assert columns.layout(_table()) == ["NAME   COUNT"]


def test_an_absent_cell_is_shown_as_none() -> None:
    assert columns.layout(_table(["a", None, None]))[1] == "a      <none>"
