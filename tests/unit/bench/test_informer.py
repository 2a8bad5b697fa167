# SPDX-License-Identifier: Apache-2.0
"""`refloat bench informer` with a few pods, on a real server and a real process."""

import pytest

from refloat.bench import informer


async def test_both_modes_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informer, "PODS", 20)
    monkeypatch.setattr(informer, "EVENTS", 10)
    rows = await informer.measure(lambda _: None)
    assert [row.what for row in rows] == [
        f"{mode}: {figure}"
        for mode in ("stream", "list")
        for figure in ("memory per pod", "CPU per pod", "CPU per event")
    ]
