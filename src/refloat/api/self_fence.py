# SPDX-License-Identifier: Apache-2.0
"""The promise of a node to end a pod by itself when it cannot reach the API any more.

A pod asks for it by the annotation when it starts. The node that gives it lists
the pod in its own Lease, which no tenant can write: only that listing counts
(`read_listed`). The pod's condition repeats it for people, and for the next agent
on the node. Both the writing and the reading half are here, so that they agree.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec

from refloat.api.coordination import Lease

ANNOTATION = "refloat.dev/self-fence"
"""`"true"` when the pod starts asks for the promise."""

CONDITION = "refloat.dev/SelfFenceArmed"
REASON = "Armed"

LISTED = "refloat.dev/self-fenced"
"""On the Lease of a node: the promises that are in force, by the uids of pods."""

# A Lease lists so many promises at most. An entry has about 50 bytes, and all annotations of an
# object may have 256 KiB together. A pod that is not listed counts as not armed.
MAX_LISTED = 2000

# Ten years: a larger number is a mistake, and would be too large for a time.
MAX_SECONDS = 10 * 365 * 86_400

# A clock may run so much faster than another.
_DRIFT = 1.01

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
    boot_id: str = ""
    """The boot of the machine in which it was given; after another one nothing runs any more.
    The condition has it, the Lease does not."""


def dead_seconds(promise: Promise) -> float:
    """How long the Lease must have been seen unchanged until the pod is dead for sure."""
    return (promise.seconds + promise.kill_grace_seconds) * _DRIFT


def write(promise: Promise) -> str:
    """The condition's message."""
    return (
        f"Ends by itself {promise.seconds}s after its node last renewed its lease,"
        f" and is dead {promise.kill_grace_seconds}s later (boot {promise.boot_id})"
    )


def read(message: str) -> Promise | None:
    """The promise in a condition's message; None for a message that `write` did not make."""
    match = _FORM.fullmatch(message)
    if match is None:
        return None
    return Promise(int(match["seconds"]), int(match["kill"]), match["boot"])


def write_listed(promises: Mapping[str, Promise]) -> str:
    """The annotation of the Lease; the first `MAX_LISTED` of more."""
    entries = {
        uid: (each.seconds, each.kill_grace_seconds)
        for uid, each in list(promises.items())[:MAX_LISTED]
    }
    return msgspec.json.encode(entries).decode() if entries else ""


def read_listed(lease: Lease | None) -> Mapping[str, Promise]:
    """The promises in a node's Lease; none if the list is invalid."""
    text = "" if lease is None else (lease.metadata.annotations or {}).get(LISTED, "")
    if not text:
        return {}
    try:
        entries = _LISTING.decode(text)
    except msgspec.MsgspecError:
        return {}
    return {uid: Promise(seconds, kill) for uid, (seconds, kill) in entries.items()}


_Seconds = Annotated[int, msgspec.Meta(ge=0, le=MAX_SECONDS)]
_LISTING = msgspec.json.Decoder(dict[str, tuple[_Seconds, _Seconds]])
