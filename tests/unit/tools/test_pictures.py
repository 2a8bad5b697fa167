# SPDX-License-Identifier: Apache-2.0
"""The pictures of the documents are drawn from sources in the repository."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from tools.pictures import architecture, demo

DOCS = Path(__file__).parents[3] / "docs"


def test_the_drawing_of_the_architecture_is_the_one_of_its_source() -> None:
    source = (DOCS / "architecture.txt").read_text()
    assert (DOCS / "architecture.svg").read_text() == architecture.draw(source), "make pictures"


def test_an_unknown_line_of_a_source_is_an_error() -> None:
    with pytest.raises(SystemExit, match="line 2: 'arrow' is not one of"):
        architecture.parse("section a\narrow b")


def test_a_recording_shows_each_line_after_its_time() -> None:
    lines = [demo.Line("Title", 0.0), demo.Line("  <done>", 3.0)]
    texts = list(ET.fromstring(demo.svg("refloat demo", lines)))
    rows = [each for each in texts if each.tag.endswith("text")]
    assert [each.text for each in rows] == ["$ refloat demo", "Title", "  <done>"]
    assert rows[-1].get("style") == "animation-delay:1.5s"


def test_a_command_that_fails_is_not_recorded() -> None:
    with pytest.raises(SystemExit, match="ended with 1"):
        list(demo.record(["false"]))
