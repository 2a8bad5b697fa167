# SPDX-License-Identifier: Apache-2.0
"""The promise of a node to end a pod by itself when it cannot reach the API any more.

A pod asks for it by the annotation when it starts; the node that gives it
says so in the condition. The message is for people and for `read` alike:
both halves are here, so that the node and who relies on it cannot differ.
"""

import re
from dataclasses import dataclass

ANNOTATION = "refloat.dev/self-fence"
"""`"true"` when the pod starts asks for the promise."""

CONDITION = "refloat.dev/SelfFenceArmed"
REASON = "Armed"

_FORM = re.compile(
    r"Ends by itself (?P<seconds>\d+)s after its node last renewed its lease,"
    r" and is dead (?P<kill>\d+)s later \(boot (?P<boot>[0-9a-f-]+)\)"
)


@dataclass(frozen=True, slots=True)
class Promise:
    """What a node promises for one pod."""

    seconds: int
    """From the last successful renewal's sending to the pod's end, whatever the agent does."""
    kill_grace_seconds: int
    """How long the end itself may take at most."""
    boot_id: str
    """The boot of the machine in which it was given; after another one nothing runs any more."""


def write(promise: Promise) -> str:
    """The condition's message."""
    return (
        f"Ends by itself {promise.seconds}s after its node last renewed its lease,"
        f" and is dead {promise.kill_grace_seconds}s later (boot {promise.boot_id})"
    )


def read(message: str) -> Promise | None:
    """What a condition's message promises; nothing if it is not one of `write`."""
    found = _FORM.fullmatch(message)
    if found is None:
        return None
    return Promise(int(found["seconds"]), int(found["kill"]), found["boot"])
