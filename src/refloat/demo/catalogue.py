# SPDX-License-Identifier: Apache-2.0
"""All stories, in the order in which `refloat demo --list` shows them."""

from refloat.base.errors import UsageError
from refloat.demo import force_eviction, lifecycle, ranges_and_reasons, restart, zombie
from refloat.demo.failures import cases
from refloat.demo.story import Story

STORIES = (
    Story(
        "zombie",
        "A pod hangs on a lost node, is freed, and its Job goes on",
        zombie.act,
        zombie.SETTING,
    ),
    Story("lifecycle", "A Job, its pods, an eviction and a budget, watched live", lifecycle.act),
    Story("restart", "A cluster that stops loses nothing, not even its past", restart.act),
    Story(
        "ranges-and-reasons",
        "A backoffPolicy: which codes are bugs, and who ended a pod",
        ranges_and_reasons.act,
        ranges_and_reasons.SETTING,
    ),
    Story(
        "force-eviction",
        "A node is off, somebody says so, and a volume comes free",
        force_eviction.act,
        force_eviction.SETTING,
    ),
    *(each.story for each in cases.CASES),
)

DEFAULT = STORIES[0]


def find(name: str) -> Story:
    """The story with this name."""
    for story in STORIES:
        if story.name == name:
            return story
    known = ", ".join(story.name for story in STORIES)
    raise UsageError(f"unknown story {name!r}; known are: {known}")
