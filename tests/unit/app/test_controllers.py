# SPDX-License-Identifier: Apache-2.0
"""Which controllers `--controllers` means."""

import pytest

from refloat.app import controllers
from refloat.base.errors import UsageError


@pytest.fixture(autouse=True)
def _two_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controllers, "KNOWN", ("a", "b"))


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("*", ("a", "b"), id="all"),
        pytest.param("none", (), id="none"),
        pytest.param("", (), id="nothing said"),
        pytest.param("b", ("b",), id="one"),
        pytest.param(" b , a ", ("a", "b"), id="in the order of the table"),
        pytest.param("-a", ("b",), id="all but one"),
        pytest.param("*,-b", ("a",), id="all but one, said at length"),
        pytest.param("a,-a", (), id="left out goes over named"),
    ],
)
def test_the_text_means_controllers(text: str, want: tuple[str, ...]) -> None:
    assert controllers.chosen(text) == want


@pytest.mark.parametrize("text", ["nope", "-nope", "*,nope"])
def test_one_that_is_not_there_is_refused_with_those_that_are(text: str) -> None:
    with pytest.raises(UsageError, match=r"unknown controller .*; known are: \*, none, a, b"):
        controllers.chosen(text)
