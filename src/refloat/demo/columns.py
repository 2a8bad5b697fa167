# SPDX-License-Identifier: Apache-2.0
"""A Table of the API as lines of text, laid out as kubectl does."""

from typing import Any

GAP = "   "


def layout(table: dict[str, Any]) -> list[str]:
    """The header and the rows, without the columns that only `-o wide` shows."""
    definitions = table["columnDefinitions"]
    shown = [place for place, each in enumerate(definitions) if not each.get("priority")]
    header = [definitions[place]["name"].upper() for place in shown]
    rows = [header, *([_text(row["cells"][place]) for place in shown] for row in table["rows"])]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [_line(row, widths) for row in rows]


def _text(cell: Any) -> str:
    return "<none>" if cell is None else str(cell)


def _line(row: list[str], widths: list[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
    return GAP.join(padded).rstrip()
