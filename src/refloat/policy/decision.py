# SPDX-License-Identifier: Apache-2.0
"""A decision that stands before it can be seen in the status of a Job.

1. A Job is over, and its pods are deleted. 2. Only when all of them are does
the status say why (behaviour A4.12). 3. Who crashes in between leaves pods that
were deleted and nothing that says why: as failures of their own they could
change the reason, the counts, even a success into a failure (behaviour H12).

So the decision is noted in an annotation before the first deletion, and goes
with the write that makes a condition of it. With the note it is written who had
ended until then (`accounting.ended`): whoever is deleted and in no list is taken
for a pod that ran. It names the Job's uid: a copy of
the Job is not bound by it.
"""

from collections.abc import Mapping

import msgspec

ANNOTATION = "refloat.dev/decision"


class Decision(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    uid: str
    succeeded: bool
    reason: str
    message: str


_decoder = msgspec.json.Decoder(Decision)


def write(decision: Decision) -> str:
    return msgspec.json.encode(decision).decode()


def read(annotations: Mapping[str, str] | None, uid: str) -> Decision | None:
    """What was decided about the Job with this uid; None also if it cannot be read."""
    written = (annotations or {}).get(ANNOTATION)
    if written is None:
        return None
    try:
        found = _decoder.decode(written)
    except msgspec.DecodeError:
        return None
    return found if found.uid == uid else None
