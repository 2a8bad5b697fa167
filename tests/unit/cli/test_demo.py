# SPDX-License-Identifier: Apache-2.0
"""The demo's colours."""

import pytest

from refloat.cli import demo
from tests.cases import cases


@cases(
    "environ want",
    {
        "colours are the default": ({}, True),
        "NO_COLOR forbids them": ({"NO_COLOR": "1"}, False),
        "an empty NO_COLOR says nothing": ({"NO_COLOR": ""}, True),
    },
)
def test_no_color_is_respected(environ: dict[str, str], *, want: bool) -> None:
    assert demo.has_colours(environ) is want


@pytest.mark.parametrize("colours", [True, False])
def test_a_screen_without_colours_writes_no_escapes(*, colours: bool) -> None:
    screen = demo.Screen(live=True, colours=colours)
    assert ("\x1b" in screen.styled("text", fg="cyan", bold=True)) is colours
