# SPDX-License-Identifier: Apache-2.0
"""`python -m tools.pictures.demo FILE`: run `refloat demo` and record its output as an SVG.

Each line appears after the time at which the demo printed it, so the SVG plays like a
terminal. It needs no script and no font from elsewhere. A reader who asks for less motion
sees all lines at once.
"""

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

REFLOAT = Path(sys.executable).with_name("refloat")

COLUMNS = 80
FONT_SIZE, LINE_HEIGHT, MARGIN = 14, 19, 18
CHARACTER_WIDTH = 8.43  # of a monospaced font of this size, in pixels

SPEED = 2.0
"""The recording plays twice as fast as the demo ran: half a minute is long on a page."""

STYLES = """
    rect { fill: #10151c }
    text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
           fill: #d3dbe4; white-space: pre }
    .title { fill: #ffffff; font-weight: bold }
    .step { fill: #8fc7ff; font-weight: bold }
    .command { fill: #9be09b }
    .lost { fill: #ffb454 }
    .failed { fill: #ff8a8a }
    .line { animation: appear 0.2s both }
    @keyframes appear { from { opacity: 0 } to { opacity: 1 } }
    @media (prefers-reduced-motion: reduce) { .line { animation: none } }
"""

# The first pattern that matches gives a line its class.
CLASSES = (
    (re.compile(r"^\d+\. "), "step"),
    (re.compile(r"^  \$ "), "command"),
    (re.compile(r"KueueForcefullyTerminated"), "failed"),
    (re.compile(r"unreachable: silent|is evicted"), "lost"),
)


@dataclass(frozen=True)
class Line:
    """One printed line."""

    text: str
    second: float
    """When the demo printed the line, after its first line."""


def record(command: list[str]) -> Iterator[Line]:
    """Run a command; each line with the time at which the command printed it."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        assert process.stdout is not None
        first = 0.0
        for text in process.stdout:
            now = time.monotonic()
            first = first or now
            yield Line(text.rstrip("\n"), now - first)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")


def svg(command: str, lines: list[Line]) -> str:
    """The recording of a command as an SVG."""
    lines = [Line(f"$ {command}", 0.0), Line("", 0.0), *lines]
    width = round(COLUMNS * CHARACTER_WIDTH + 2 * MARGIN)
    height = len(lines) * LINE_HEIGHT + 2 * MARGIN
    rows = "\n".join(
        f'  <text class="line {_class(number, line.text)}" x="{MARGIN}" '
        f'y="{MARGIN + FONT_SIZE + number * LINE_HEIGHT}" '
        f'style="animation-delay:{line.second / SPEED:.1f}s">{escape(line.text)}</text>'
        for number, line in enumerate(lines)
        if line.text
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" xml:space="preserve" '
        f'aria-label="A recording of {command}">\n'
        f"  <style>{STYLES}  </style>\n"
        f'  <rect width="{width}" height="{height}" rx="8"/>\n{rows}\n</svg>\n'
    )


def _class(number: int, text: str) -> str:
    if number == 0:
        return "command"
    if number == 2:
        return "title"
    return next((name for pattern, name in CLASSES if pattern.search(text)), "")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.pictures.demo", description=__doc__)
    parser.add_argument("file", type=Path, help="where the SVG goes")
    file: Path = parser.parse_args().file
    lines = list(record([str(REFLOAT), "demo"]))
    file.write_text(svg("refloat demo", lines))
    print(f"{file}: {len(lines)} lines, {lines[-1].second:.0f} s")


if __name__ == "__main__":
    main()
