# SPDX-License-Identifier: Apache-2.0
"""Chance that repeats itself, and secrets that do not."""

import os
import random
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refloat.base import rand
from refloat.base.rand import Rand


@given(seed=st.integers(0, 2**64))
def test_same_seed_draws_the_same(seed: int) -> None:
    def drawn(source: Rand) -> list[object]:
        items = [1, 2, 3, 4]
        source.shuffle(items)
        return [source.random(), source.below(9), source.choice("abc"), source.uid(), items]

    assert drawn(Rand(seed)) == drawn(Rand(seed))


def test_sources_without_a_seed_differ() -> None:
    assert Rand().uid() != Rand().uid()


def test_without_a_seed_the_system_is_asked_for_each_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's own generator would be foretold by whoever has seen 600 ids of it."""
    asked: list[int] = []
    really = os.urandom

    def urandom(size: int) -> bytes:
        asked.append(size)
        return really(size)

    monkeypatch.setattr(random, "_urandom", urandom)
    source = Rand()
    asked.clear()
    for draw in (source.uid, source.suffix, source.random):
        draw()
        assert asked, draw.__name__
        asked.clear()


@given(seed=st.integers(0, 2**64))
def test_uid_is_a_random_uuid(seed: int) -> None:
    text = Rand(seed).uid()
    assert uuid.UUID(text).version == 4
    assert str(uuid.UUID(text)) == text


@given(seed=st.integers(0, 2**64))
def test_suffix_is_five_letters_that_spell_nothing(seed: int) -> None:
    suffix = Rand(seed).suffix()
    assert len(suffix) == rand.SUFFIX_LENGTH
    assert set(suffix) <= set(rand.SUFFIX_LETTERS)
    assert not set(suffix) & set("aeiou013")


@given(seconds=st.floats(0, 1e6), fraction=st.floats(0, 2), seed=st.integers(0, 99))
def test_jitter_only_raises(seconds: float, fraction: float, seed: int) -> None:
    drawn = Rand(seed).jitter(seconds, fraction)
    assert seconds <= drawn <= seconds * (1 + fraction)


def test_token_cannot_be_repeated() -> None:
    tokens = {rand.token() for _ in range(50)}
    assert len(tokens) == 50
    assert all(len(token) >= 43 for token in tokens)
