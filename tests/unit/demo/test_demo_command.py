# SPDX-License-Identifier: Apache-2.0
"""`refloat demo`, as its user sees it."""

import pytest
from click.testing import CliRunner

from refloat.base import log
from refloat.cli import demo
from refloat.demo.line import Kind, Line


@pytest.fixture
def _quiet_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the logging of the test run as it is."""
    monkeypatch.setattr(log, "setup", lambda **_: None)


def test_the_list_names_every_story() -> None:
    done = CliRunner().invoke(demo.command, ["--list"])
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["lifecycle", "restart"]


@pytest.mark.usefixtures("_quiet_logs")
def test_a_story_is_shown_without_escape_codes_where_nobody_looks() -> None:
    done = CliRunner().invoke(demo.command, ["restart", "--pace", "0"])
    assert done.exit_code == 0
    assert "\x1b" not in done.stdout
    assert "The story ended well" in done.stdout


def test_an_unknown_story_is_wrong_use() -> None:
    done = CliRunner().invoke(demo.command, ["no-such-story"])
    assert done.exit_code != 0
    assert "unknown story" in str(done.exception)


@pytest.mark.parametrize(
    ("kind", "want"),
    [
        pytest.param("step", ["", "some text"], id="a step stands apart"),
        pytest.param("note", ["  some text"], id="a note has no time"),
        pytest.param("event", ["    1.50s  some text"], id="an event has its time"),
        pytest.param("table", ["  some text"], id="a table is kept as it is"),
    ],
)
def test_lines_are_laid_out_by_their_kind(kind: Kind, want: list[str]) -> None:
    assert demo.render(Line(kind, "some text", 1.5)) == want


def test_a_long_line_goes_on_below_its_text() -> None:
    first, second = demo.render(Line("answer", "word " * 20, 1.5))
    assert len(first) <= demo.WIDTH
    assert second.startswith(" " * 11 + "word")
