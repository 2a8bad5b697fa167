# SPDX-License-Identifier: Apache-2.0
"""The layout of a Table of the API as lines of text, like kubectl's."""

from typing import Any

GAP = "   "


def layout(table: dict[str, Any]) -> list[str]:
    """The header and the rows, without the columns of `-o wide`."""
    definitions = table["columnDefinitions"]
    columns = [n for n, column in enumerate(definitions) if not column.get("priority")]
    rows = [[definitions[n]["name"].upper() for n in columns]]
    for row in table["rows"]:
        cells = (row["cells"][n] for n in columns)
        rows.append(["<none>" if cell is None else str(cell) for cell in cells])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
