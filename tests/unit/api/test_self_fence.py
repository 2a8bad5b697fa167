# SPDX-License-Identifier: Apache-2.0
import pytest

from refloat.api import self_fence
from refloat.api.self_fence import Promise


def test_what_is_written_is_read() -> None:
    promise = Promise(380, 5, "0b5a1f6e-9c4d-4a52-8f2e-2f1f6f0e9a11")
    assert self_fence.read(self_fence.write(promise)) == promise


@pytest.mark.parametrize("text", ["", "Armed", "Ends by itself soon", "Ends by itself -1s after"])
def test_another_text_promises_nothing(text: str) -> None:
    assert self_fence.read(text) is None


def test_a_promise_with_more_behind_it_is_none() -> None:
    assert self_fence.read(self_fence.write(Promise(1, 2, "ab")) + ", perhaps") is None
