# SPDX-License-Identifier: Apache-2.0
"""How an explanation looks on a terminal: verdict, next steps, commands, attempts, evidence."""

import itertools
import shutil
import textwrap
from collections.abc import Iterator
from datetime import datetime

from refloat.api import durations, times
from refloat.explain.explanation import Attempt, Explanation, NextStep

# Narrower, and names break; wider, and lines are hard to read.
MIN_WIDTH, MAX_WIDTH, DEFAULT_WIDTH = 60, 120, 80

# `-o json` has all of them.
MAX_ATTEMPTS = 10


def width() -> int:
    """The columns of the terminal, within bounds; 80 where there is no terminal."""
    columns = shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns
    return max(MIN_WIDTH, min(MAX_WIDTH, columns))


def render(explanation: Explanation, columns: int) -> list[str]:
    """The lines of an explanation; a line is longer than `columns` only for a long word."""
    finding = explanation.finding
    lines = [f"{explanation.subject}: {finding.code}"]
    lines += wrapped(finding.verdict[:1].upper() + finding.verdict[1:] + ".", columns)
    steps = (wrapped(_step(each, explanation.time), columns, "  ") for each in finding.next)
    lines += _section("Next", itertools.chain.from_iterable(steps))
    lines += _section("What you can do", _commands(explanation, columns))
    lines += _section("Attempts", _attempts(explanation, columns))
    lines += _section("Evidence", _evidence(explanation, columns))
    lines += _section("Not known", _limits(explanation, columns))
    return lines


def _section(title: str, body: Iterator[str]) -> list[str]:
    lines = list(body)
    return ["", title, *lines] if lines else []


def _step(step: NextStep, now: datetime) -> str:
    text = f"{step.component} {step.text}" if step.component else step.text
    if step.at is None:
        return text
    seconds = round((step.at - now).total_seconds())
    delay = "now" if seconds <= 0 else f"in {durations.show(times.span(seconds))}"
    return f"{moment(step.at, now)} ({delay}): {text}"


def moment(at: datetime, now: datetime) -> str:
    """The local time; with the date if that is another day."""
    local = at.astimezone()
    return local.strftime("%H:%M:%S" if local.date() == now.astimezone().date() else "%F %T")


def _commands(explanation: Explanation, columns: int) -> Iterator[str]:
    """A command stays in one line, so that it can be copied."""
    for each in explanation.finding.commands:
        yield from wrapped(f"{each.text}{':' if each.command else ''}", columns, "  ")
        if each.command:
            yield f"    {each.command}"


def _attempts(explanation: Explanation, columns: int) -> Iterator[str]:
    rows = explanation.attempts
    if explanation.budget:
        yield from wrapped(f"{explanation.budget}.", columns, "  ")
    if len(rows) > MAX_ATTEMPTS:
        yield f"  {len(rows) - MAX_ATTEMPTS} earlier attempts: use -o json"
    last_log = next((row for row in reversed(rows) if row.log), None)
    for row in rows[-MAX_ATTEMPTS:]:
        yield from wrapped(_attempt(row, explanation.time), columns, "  ", "      ")
        if row is last_log:
            yield "      the end of its log:"
            for line in row.log.splitlines():
                yield from wrapped(line, columns, "      | ", "      | ")


def _attempt(row: Attempt, now: datetime) -> str:
    index = "" if row.index is None else f"index {row.index} "
    parts = [f"{index}try {row.number}: {row.pod}"]
    if row.node:
        parts.append(f"on {row.node}")
    if row.start or row.end:
        start = moment(row.start, now) if row.start else "?"
        parts.append(f"{start} to {moment(row.end, now)}" if row.end else f"since {start}")
    text = " ".join(parts)
    if row.cause is None:
        return f"{text}: active"
    count = {True: ", counted", False: ", not counted", None: ""}[row.counted]
    rule = f", {row.rule}" if row.rule else ""
    absence = "" if row.exists else ", pod is gone"
    return f"{text}: {row.cause} ({row.how}){rule}{count}{absence}"


def _evidence(explanation: Explanation, columns: int) -> Iterator[str]:
    for each in explanation.finding.evidence:
        yield from wrapped(f"{each.source}: {each.text}", columns, "  ", "    ")


def _limits(explanation: Explanation, columns: int) -> Iterator[str]:
    for each in explanation.limits:
        yield from wrapped(each, columns, "  ", "    ")


def wrapped(text: str, columns: int, first: str = "", later: str | None = None) -> list[str]:
    # Users of the cluster write these texts: no escape sequence may reach the terminal.
    printable = "".join(each if each.isprintable() or each.isspace() else "�" for each in text)
    return textwrap.wrap(
        printable,
        columns,
        initial_indent=first,
        subsequent_indent=first if later is None else later,
        break_long_words=False,
        break_on_hyphens=False,
    )
