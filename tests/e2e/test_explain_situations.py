# SPDX-License-Identifier: Apache-2.0
"""`refloat explain` names more than 30 situations that are created for real."""

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.e2e.situations import document, play, table
from tests.e2e.situations.steps import Playground, Situation

# Two clusters and some fifty situations take 60 s on a quiet machine.
PATIENCE_SECONDS = 600


def test_more_than_thirty_situations_are_created() -> None:
    names = [each.name for each in table.SITUATIONS]
    assert len(set(names)) == len(names) > 30


@pytest.mark.timeout(PATIENCE_SECONDS)
@pytest.mark.parametrize(
    ("cluster", "situations_of_it"),
    [
        pytest.param(play.processes, table.ON_PROCESSES, id="processes"),
        pytest.param(play.simulated, table.ON_SIMULATED, id="simulated nodes"),
    ],
)
def test_explain_names_each_situation(
    cluster: Callable[[Path], AbstractContextManager[Playground]],
    situations_of_it: Sequence[Situation],
    tmp_path: Path,
) -> None:
    tmp_path.chmod(0o755)
    with cluster(tmp_path) as playground:
        answers = play.play(playground, situations_of_it)
    wrong = play.mistakes(situations_of_it, answers)
    assert not wrong, "\n".join(wrong)
    assert [line for answer in answers.values() for line in _too_long(answer)] == []


def _too_long(answer: str) -> list[str]:
    """Lines of more than 80 columns; commands stay in one line, so that they can be copied."""
    return [
        line
        for line in answer.splitlines()
        if len(line) > 80 and not re.match(r"    (kubectl|refloat) ", line)
    ]


def test_the_page_shows_each_situation_with_its_code_and_words() -> None:
    text = document.PATH.read_text()
    answers = document.read(text)
    assert sorted(answers) == sorted(each.name for each in table.SITUATIONS)
    assert play.mistakes(table.SITUATIONS, answers) == []
    written = document.MARK + text.partition(document.MARK)[2]
    assert written == document.write(answers)
