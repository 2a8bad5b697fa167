# SPDX-License-Identifier: Apache-2.0
"""The page with what explain answered in each situation: docs/explain-examples.md."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from refloat.explain.codes import MEANINGS, Code
from tests.e2e.situations import play, table
from tests.e2e.situations.steps import Situation

PATH = Path(__file__).parents[3] / "docs" / "explain-examples.md"
MARK = "<!-- All below is written by `python -m tests.e2e.situations --write`. -->\n"

# The characters of the random end of a pod's name.
_RANDOM = "[bcdfghjklmnpqrstvwxz2456789]{5}"
_DATE = re.compile(r"\b20\d\d-\d\d-\d\d")
_TIME = re.compile(r"(?<!\d)\d\d:\d\d:\d\d(?!\d)")
_DURATION = re.compile(r"\b(\d+h)?(\d+m)?\d+s\b")
# The log of a container that prints the id of its process.
_PROCESS_ID = re.compile(r"\| \d+$", re.MULTILINE)
VOWELS = "aeiou"
_AMOUNT = re.compile(r"\b\d{4,}Ki\b")
_BLOCK = re.compile(r"^```\n\$ refloat explain [^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def write(answers: Mapping[str, str]) -> str:
    """The part of the page that a run writes, by code."""
    groups = {code: [each for each in table.SITUATIONS if each.code == code] for code in Code}
    shown = {code: group for code, group in groups.items() if group}
    parts = [MARK]
    for code, group in shown.items():
        parts += [f"## `{code}`\n", f"{MEANINGS[code]}\n"]
        for each in group:
            parts += [f"{each.title}:\n", _transcript(each, answers[each.name])]
    return "\n".join(parts)


def _transcript(situation: Situation, answer: str) -> str:
    return f"```\n$ refloat explain {situation.subject}\n{stable(answer)}```\n"


def read(text: str) -> dict[str, str]:
    """The answers in the page, by the name of their object."""
    return play.split("\n".join(_BLOCK.findall(text)))


def stable(answer: str) -> str:
    """The answer with placeholders for random names, times, durations and measured amounts.

    Placeholders of names have vowels, which random names never have.
    """
    answer = _replaced(answer, _random_ends(), [a * 4 + b for a in VOWELS for b in VOWELS])
    answer = _replaced(answer, _DATE, [f"2026-01-{day:02}" for day in range(1, 32)], order=sorted)
    times = [f"10:{number // 60:02}:{number % 60:02}" for number in range(3600)]
    answer = _replaced(answer, _TIME, times, order=sorted)
    answer = _PROCESS_ID.sub("| 4711", answer)
    answer = _DURATION.sub(_rounded, answer)
    return _AMOUNT.sub("1000Ki", answer)


def _replaced(
    answer: str,
    pattern: re.Pattern[str],
    placeholders: Sequence[str],
    order: Callable[[Iterable[str]], Iterable[str]] = list,
) -> str:
    """Equal matches get equal placeholders."""
    matches = order(dict.fromkeys(pattern.findall(answer)))
    names = dict(zip(matches, placeholders, strict=False))
    return pattern.sub(lambda match: names[match[0]], answer)


@cache
def _random_ends() -> re.Pattern[str]:
    """The random end of a pod's name, after the name of its Job and maybe an index."""
    starts = sorted({f"{name}-" for name in _job_names()})
    behind = "|".join(f"(?<={re.escape(each)})|(?<={re.escape(each)}[0-9]-)" for each in starts)
    return re.compile(rf"(?:{behind}){_RANDOM}\b")


def _job_names() -> Iterator[str]:
    """Also those of Jobs that are only in the way of others."""
    for each in table.SITUATIONS:
        yield each.name
        for manifest in each.manifests:
            yield manifest["metadata"]["name"]


def _rounded(match: re.Match[str]) -> str:
    longer = f"{match[1] or ''}{match[2] or ''}"
    return f"{longer}0s" if longer else "5s"
