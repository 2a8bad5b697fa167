# SPDX-License-Identifier: Apache-2.0
"""All stories, in the order in which `refloat demo --list` shows them."""

from refloat.base.errors import UsageError
from refloat.demo import lifecycle, restart
from refloat.demo.story import Story

STORIES = (
    Story("lifecycle", "A Job, its pods, an eviction and a budget, watched live", lifecycle.act),
    Story("restart", "A cluster that stops loses nothing, not even its past", restart.act),
)

DEFAULT = STORIES[0]


def find(name: str) -> Story:
    """The story with this name."""
    for story in STORIES:
        if story.name == name:
            return story
    known = ", ".join(story.name for story in STORIES)
    raise UsageError(f"unknown story {name!r}; known are: {known}")
