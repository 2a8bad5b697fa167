# SPDX-License-Identifier: Apache-2.0
"""Names for new pods that are the same when a create is repeated.

The form is that of Kubernetes (behaviour A8.5, A8.6), but the five characters are not random.
If they were:

1. a create is sent and succeeds, and its answer is lost;
2. the controller cannot know this, and creates again: one pod too many.

Here the second create finds its own pod under the same name. So a name depends only on what is
the same for such a retry: the Job, the index or the number among the Job's pods, the pod that is
replaced, and which of these names are in use: by a pod in the cache, or by a pod that this
process counted as a failure or deleted for a suspension or a smaller parallelism. So a name does
not come back as soon as its pod is gone. After a restart the process knows only the names in the
cache, and may use the name of a deleted pod once more; no pod is counted by its name. This module
never reads from the API server.
"""

import hashlib
from collections.abc import Callable

from refloat.api import names
from refloat.api.batch import Job
from refloat.base.rand import SUFFIX_LENGTH, SUFFIX_LETTERS
from refloat.controllers.job.sync_memory import SyncMemory
from refloat.policy.job.scaling import NewPod

# A generated name is a DNS label: 63 characters, of which five are generated.
MAX_PREFIX = 63 - SUFFIX_LENGTH

# How many names are tried. All of them are in use only if a user arranged that; then the sync
# fails with the reason.
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


class PodNamer:
    """Chooses the names of new pods in one sync."""

    def __init__(self, job: Job, memory: SyncMemory, is_taken: Callable[[str], bool]) -> None:
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

        The memory keeps the number, so that a Job with many pods does not count them all in each
        sync. Only names in the cache are passed over, never names that were only tried.
        """
        if self._ordinal is not None:
            return self._ordinal
        start = ordinal = self._memory.ordinals.get(self._job.uid, 0)
        while self._is_taken(self._candidate(NewPod(), ordinal)):
            ordinal += 1
        if ordinal != start:
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
