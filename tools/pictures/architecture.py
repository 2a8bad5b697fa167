# SPDX-License-Identifier: Apache-2.0
"""`python -m tools.pictures.architecture TEXT SVG`: draw docs/architecture.txt as an SVG.

The text source has one line for each thing, in the order of the drawing:

    section TITLE
    row NAME | BOX | BOX ...      boxes side by side; `BOX: note` adds a second line
    path NAME | STEP | STEP ...   boxes joined by arrows

The drawing follows the colours of the page (light and dark) and needs no script.
"""

import argparse
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

WIDTH, MARGIN, LABEL_WIDTH = 960, 20, 150
GAP, PADDING = 10, 10
LINE_HEIGHT, CHARACTER_WIDTH = 17, 6.6

STYLES = """
    text { font: 13px system-ui, sans-serif; fill: #1c2733 }
    .title { font-size: 17px; font-weight: 600 }
    .label { font-weight: 600 }
    .note { fill: #51606f; font-size: 12px }
    .box { fill: #eef4fb; stroke: #7f9cbb }
    .step { fill: #fdf4e3; stroke: #c9a24e }
    .arrow { stroke: #7a6a45; stroke-width: 1.5; fill: none }
    .head { fill: #7a6a45 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e3e9f0 } .note { fill: #a9b6c4 }
      .box { fill: #1d2a38; stroke: #55708c } .step { fill: #33290f; stroke: #94783a }
      .arrow { stroke: #c9b07a } .head { fill: #c9b07a }
    }
"""


@dataclass(frozen=True)
class Row:
    """One line of the source."""

    kind: str
    """section, row or path."""
    name: str
    boxes: tuple[str, ...] = ()


def parse(text: str) -> list[Row]:
    """The rows of a source; empty lines and lines with # do not count."""
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        kind, _, rest = line.partition(" ")
        if kind not in ("section", "row", "path"):
            raise SystemExit(f"line {number}: {kind!r} is not one of section, row, path")
        name, *boxes = (part.strip() for part in rest.split("|"))
        rows.append(Row(kind, name, tuple(boxes)))
    return rows


class Drawing:
    """SVG elements from top to bottom."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._y = MARGIN

    def add(self, row: Row) -> None:
        if row.kind == "section":
            self._y += 8
            self._text(MARGIN, self._y + 16, row.name, "title")
            self._y += 32
            return
        gap = GAP if row.kind == "row" else 28
        width = (WIDTH - LABEL_WIDTH - 2 * MARGIN + gap) / len(row.boxes) - gap
        cells = [list(_lines(box, width)) for box in row.boxes]
        height = max(map(len, cells)) * LINE_HEIGHT + 2 * PADDING
        for number, part in enumerate(textwrap.wrap(row.name, 20)):
            self._text(MARGIN, self._y + PADDING + 13 + number * LINE_HEIGHT, part, "label")
        for number, cell in enumerate(cells):
            x = MARGIN + LABEL_WIDTH + number * (width + gap)
            style = "box" if row.kind == "row" else "step"
            self._box(x, width, height, style, cell)
            if row.kind == "path" and number:
                self._arrow(x - gap, x, self._y + height / 2)
        self._y += height + GAP

    def _box(
        self, x: float, width: float, height: int, style: str, lines: list[tuple[str, str]]
    ) -> None:
        self._parts.append(
            f'<rect class="{style}" x="{x:.0f}" y="{self._y}" width="{width:.0f}" '
            f'height="{height}" rx="6"/>'
        )
        for number, (text, kind) in enumerate(lines):
            self._text(x + PADDING, self._y + PADDING + 13 + number * LINE_HEIGHT, text, kind)

    def _arrow(self, start: float, end: float, y: float) -> None:
        self._parts.append(
            f'<path class="arrow" d="M{start + 3:.0f} {y:.0f}H{end - 8:.0f}"/>'
            f'<path class="head" d="M{end - 3:.0f} {y:.0f}l-8 -4v8z"/>'
        )

    def _text(self, x: float, y: float, text: str, kind: str) -> None:
        self._parts.append(f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}">{escape(text)}</text>')

    def svg(self) -> str:
        height = self._y + MARGIN
        body = "\n  ".join(self._parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" role="img" '
            f'aria-label="The architecture of Refloat">\n  <style>{STYLES}  </style>\n'
            f"  {body}\n</svg>\n"
        )


def _lines(box: str, width: float) -> Iterator[tuple[str, str]]:
    """The lines of a box with their classes: the name, then the note."""
    name, _, note = box.partition(": ")
    columns = int((width - 2 * PADDING) / CHARACTER_WIDTH)
    yield from ((line, "label") for line in textwrap.wrap(name, columns))
    yield from ((line, "note") for line in textwrap.wrap(note, columns))


def draw(source: str) -> str:
    """The SVG of a source."""
    drawing = Drawing()
    for row in parse(source):
        drawing.add(row)
    return drawing.svg()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tools.pictures.architecture", description=__doc__
    )
    parser.add_argument("text", type=Path)
    parser.add_argument("svg", type=Path)
    files = parser.parse_args()
    files.svg.write_text(draw(files.text.read_text()))


if __name__ == "__main__":
    main()
