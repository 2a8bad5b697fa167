# SPDX-License-Identifier: Apache-2.0
"""Which controllers `--controllers` means."""

import pytest

from refloat.app import controller_names
from refloat.base.errors import UsageError
from tests.cases import cases


@pytest.fixture(autouse=True)
def _two_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_names, "KNOWN", ("a", "b"))


@cases(
    "text want",
    {
        "all": ("*", ("a", "b")),
        "none": ("none", ()),
        "nothing said": ("", ()),
        "one": ("b", ("b",)),
        "in the order of the table": (" b , a ", ("a", "b")),
        "all but one": ("-a", ("b",)),
        "all but one, said at length": ("*,-b", ("a",)),
        "left out goes over named": ("a,-a", ()),
    },
)
def test_the_text_means_controllers(text: str, want: tuple[str, ...]) -> None:
    assert controller_names.select(text) == want


@pytest.mark.parametrize("text", ["nope", "-nope", "*,nope"])
def test_one_that_is_not_there_is_refused_with_those_that_are(text: str) -> None:
    with pytest.raises(UsageError, match=r"unknown controller .*; known are: \*, none, a, b"):
        controller_names.select(text)
