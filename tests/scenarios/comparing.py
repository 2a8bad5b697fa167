# SPDX-License-Identifier: Apache-2.0
"""Where two clusters end a scenario differently, and which differences are documented.

What is meant stands in docs/compatibility.md, in the table below the heading
`What the scenarios show`: for whom it reads, and for this module. A difference
that no line of it names is a bug.
"""

import fnmatch
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from refloat.api.meta import Object
from tests.scenarios.playing import ScenarioResult

DOCUMENT = Path(__file__).parents[2] / "docs" / "compatibility.md"
HEADING = "## What the scenarios show"

# The first cell of a line: a name, then settings, scenarios and field.
_ROW = re.compile(r"^\| ([^:|]+): `([^`]+)` `([^`]+)` `([^`]+)` \|", re.MULTILINE)

# What is shown of a value in the table; the rest is in the outcomes.
WIDTH = 60

Outcomes: TypeAlias = Mapping[str, ScenarioResult]
"""By the name of the scenario."""

ABSENT = "-"


@dataclass(frozen=True, slots=True)
class ExpectedDifference:
    """A line of the table: a difference that is to be."""

    id: str
    settings: str
    scenarios: str
    field: str

    def covers(self, setting: str, scenario: str, field: str) -> bool:
        return (
            setting in self.settings.split()
            and fnmatch.fnmatchcase(scenario, self.scenarios)
            and fnmatch.fnmatchcase(field, self.field)
        )


@dataclass(frozen=True, slots=True)
class OutcomeDifference:
    """A field of a scenario's outcome that is not as in the reference."""

    scenario: str
    field: str
    setting: str
    expected: str
    found: str
    meant: str = ""
    """The id of the line that documents the difference."""


def meant(document: Path = DOCUMENT) -> list[ExpectedDifference]:
    """The lines of the table."""
    _, _, rest = document.read_text().partition(f"\n{HEADING}\n")
    section = rest.partition("\n## ")[0]
    return [ExpectedDifference(*cells) for cells in _ROW.findall(section)]


def differences(
    reference: Outcomes, others: Mapping[str, Outcomes], documented: Iterable[ExpectedDifference]
) -> Iterator[OutcomeDifference]:
    """All of them, in the order of the scenarios; both must have ended as claimed."""
    lines = list(documented)
    for name, expected in reference.items():
        for setting, outcomes in others.items():
            other = outcomes.get(name)
            if other is None or expected.outcome is None or other.outcome is None:
                continue
            yield from _between(name, setting, expected.outcome, other.outcome, lines)


def _between(
    scenario: str, setting: str, expected: Object, other: Object, lines: list[ExpectedDifference]
) -> Iterator[OutcomeDifference]:
    expected_fields, right = dict(_fields(expected)), dict(_fields(other))
    for field in sorted({*expected_fields, *right}):
        before, after = expected_fields.get(field, ABSENT), right.get(field, ABSENT)
        if before != after:
            of = next((each.id for each in lines if each.covers(setting, scenario, field)), "")
            yield OutcomeDifference(scenario, field, setting, before, after, of)


def _fields(outcome: Object) -> Iterator[tuple[str, str]]:
    """An outcome as paths and values; each event is a field of its own."""
    for event in outcome["events"]:
        yield f"events.{event['reason']}: {event['note']}", f"{event['type']} x{event['count']}"
    for number, note in enumerate(outcome["notes"]):
        yield f"notes.{number}", note
    yield from _paths("job", outcome["job"])
    yield from _paths("pods", outcome["pods"])


def _paths(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _paths(f"{path}.{key}", inner)
    else:
        yield path, json.dumps(value, sort_keys=True)


def unseen(
    lines: Iterable[ExpectedDifference],
    differences: Iterable[OutcomeDifference],
    settings: set[str],
) -> list[ExpectedDifference]:
    """Lines about the settings that were compared, of which nothing was seen."""
    ids = {each.meant for each in differences}
    return [each for each in lines if each.id not in ids and set(each.settings.split()) <= settings]


def table(differences: Iterable[OutcomeDifference]) -> str:
    """For people: scenario, field, and the value on each side."""
    lines = []
    for each in differences:
        why = f"meant: {each.meant}" if each.meant else "NOT MEANT"
        lines.append(f"{each.scenario}: {each.field}  ({each.setting}, {why})")
        lines.append(f"    reference  {_short(each.expected)}")
        lines.append(f"    {each.setting:<9}  {_short(each.found)}")
    return "\n".join(lines)


def _short(text: str) -> str:
    return text if len(text) <= 3 * WIDTH else f"{text[: 3 * WIDTH]}..."
