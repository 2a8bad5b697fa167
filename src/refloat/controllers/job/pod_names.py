# SPDX-License-Identifier: Apache-2.0
"""Names for new pods that come out the same when a create is tried again.

In shape they are Kubernetes' (behaviour A8.5, A8.6), but the five characters
are not left to chance. If they were:

1. a create is sent and succeeds, and its answer is lost;
2. the controller cannot know, and creates again: one pod too many.

Here the second create meets its own pod under the same name. So a name
depends only on what such a retry finds unchanged: the Job, the index or the
number among the Job's pods, the pod that is replaced, and which of these names
are taken: by a pod in the cache, or by one that this process counted as a
failure or deleted for a suspension or a smaller parallelism, so that a name does
not come back as soon as its pod is gone. A successor of the process knows the
names in the cache only, and may give the name of a pod that is gone once more;
nothing is counted by name. Nothing here asks the API.
"""

import hashlib
from collections.abc import Callable

from refloat.api import names
from refloat.api.batch import Job
from refloat.base.rand import SUFFIX_LENGTH, SUFFIX_LETTERS
from refloat.controllers.job.memory import Memory
from refloat.policy.scaling import NewPod

# A generated name is a DNS label: 63 characters, of which five are generated.
MAX_PREFIX = 63 - SUFFIX_LENGTH

# How many names are tried. All of them can only be taken if somebody tries to
# make it so; then the sync fails and says why.
MAX_ATTEMPTS = 1_000_000


def prefix(job: str, index: int | None) -> str:
    """What Kubernetes has for generateName."""
    if index is not None:
        end = f"-{index}-"
        return job[: MAX_PREFIX - len(end)] + end
    whole = f"{job}-"
    if names.dns_subdomain(names.as_prefix(whole)):
        whole = job
    return whole


class Namer:
    """Gives out the names of one sync."""

    def __init__(self, job: Job, memory: Memory, is_taken: Callable[[str], bool]) -> None:
        self._job = job.metadata
        self._memory = memory
        self._is_known = is_taken
        self._given: set[str] = set()
        self._ordinal: int | None = None

    def name(self, new: NewPod) -> str:
        start = 0 if new.index is not None else self._next_ordinal()
        for attempt in range(start, start + MAX_ATTEMPTS):
            candidate = self._candidate(new, attempt)
            if candidate not in self._given and not self._is_taken(candidate):
                self._given.add(candidate)
                if new.index is None:
                    self._ordinal = attempt + 1
                return candidate
        raise RuntimeError(f"no name is free for a pod of {self._job.namespace}/{self._job.name}")

    def _is_taken(self, name: str) -> bool:
        return self._is_known(name) or self._memory.is_retired(self._job.uid, name)

    def _next_ordinal(self) -> int:
        """The first number whose name the cache does not know.

        It is remembered, so that a Job of many pods does not count them all
        in each sync; only what was seen is passed, never what was tried.
        """
        if self._ordinal is not None:
            return self._ordinal
        known = ordinal = self._memory.ordinals.get(self._job.uid, 0)
        while self._is_taken(self._candidate(NewPod(), ordinal)):
            ordinal += 1
        if ordinal != known:
            self._memory.ordinals[self._job.uid] = ordinal
        return ordinal

    def _candidate(self, new: NewPod, attempt: int) -> str:
        replaced = "" if new.replaces is None else new.replaces.metadata.uid
        index = "" if new.index is None else new.index
        stem = prefix(self._job.name, new.index)[:MAX_PREFIX]
        return stem + _suffix(f"{self._job.uid}/{index}/{attempt}/{replaced}")


def _suffix(text: str) -> str:
    number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
    letters = []
    for _ in range(SUFFIX_LENGTH):
        number, letter = divmod(number, len(SUFFIX_LETTERS))
        letters.append(SUFFIX_LETTERS[letter])
    return "".join(letters)
