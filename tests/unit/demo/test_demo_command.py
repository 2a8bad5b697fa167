# SPDX-License-Identifier: Apache-2.0
"""`refloat demo`, as its user sees it."""

import click
import pytest
from click.testing import CliRunner

from refloat.base import log
from refloat.cli import demo
from refloat.demo import catalogue
from refloat.demo.output_lines import Kind, Line
from tests.cases import cases


@pytest.fixture
def _quiet_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the logging of the test run as it is."""
    monkeypatch.setattr(log, "setup", lambda **_: None)


def test_the_list_names_every_story() -> None:
    done = CliRunner().invoke(demo.command, ["--list"])
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == [each.name for each in catalogue.DEMOS]
    assert max(map(len, lines)) <= demo.WIDTH


@pytest.mark.usefixtures("_quiet_logs")
def test_a_demo_is_shown_without_escape_codes_where_nobody_looks() -> None:
    done = CliRunner().invoke(demo.command, ["restart", "--pace", "0"])
    assert done.exit_code == 0
    assert "\x1b" not in done.stdout
    assert "The demo ended as expected" in done.stdout


def test_an_unknown_story_is_wrong_use() -> None:
    done = CliRunner().invoke(demo.command, ["no-such-demo"])
    assert done.exit_code != 0
    assert "unknown demo" in str(done.exception)


@cases(
    "kind want",
    {
        "a step stands apart": ("step", ["", "some text"]),
        "a note has no time": ("note", ["  some text"]),
        "an event has its time": ("event", ["    1.50s  some text"]),
        "a table is kept as it is": ("table", ["  some text"]),
    },
)
def test_lines_are_laid_out_by_their_kind(kind: Kind, want: list[str]) -> None:
    assert demo.render(Line(kind, "some text", 1.5)) == want


def test_a_long_line_goes_on_below_its_text() -> None:
    first, second = demo.render(Line("answer", "word " * 20, 1.5))
    assert len(first) <= demo.WIDTH
    assert second.startswith(" " * 11 + "word")


def shown(*lines: Line, live: bool) -> str:
    """What is printed, one line after the other."""

    @click.command()
    def printing() -> None:
        screen = demo.Screen(live=live)
        for line in lines:
            screen.show(line)

    return CliRunner().invoke(printing, color=live).stdout


BOARD = Line("board", "first\nsecond", 0.0)


def test_live_the_picture_stays_below_what_is_told() -> None:
    printed = shown(BOARD, Line("note", "told", 0.0), live=True)
    assert printed == "  first\n  second\n\x1b[2A\x1b[J  told\x1b[0m\n  first\n  second\n"


def test_a_picture_that_ends_leaves_nothing() -> None:
    assert shown(BOARD, Line("board", "", 0.0), live=True).endswith("\x1b[2A\x1b[J")


def test_where_nobody_watches_there_is_no_picture() -> None:
    assert shown(BOARD, Line("note", "told", 0.0), live=False) == "  told\n"


def test_a_picture_that_does_not_fit_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "7")
    assert shown(BOARD, live=True) == ""
    monkeypatch.setenv("LINES", "8")
    assert shown(BOARD, live=True) == "  first\n  second\n"
