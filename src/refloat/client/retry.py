# SPDX-License-Identifier: Apache-2.0
"""Decides which calls to try again, after which failures, and when.

Refloat repeats a call if two deliveries have no other effect than one:

| failure                               | any call | only a repeatable call |
|---------------------------------------|----------|------------------------|
| no connection (`Unreachable`)         | again    |                        |
| 429, but not a disruption budget's    | again    |                        |
| 5xx                                   |          | again                  |
| the connection broke after sending    |          | again                  |
| no answer in time; every other answer |          |                        |

These calls are repeatable, also after a first call that did arrive:

* every read;
* a create of a named object: the second call gets `AlreadyExists`, and the
  caller reads the object. With a generated name there would be two objects;
* an apply patch, and any patch object with a resourceVersion: the second call
  changes nothing, or gets `Conflict`. Other patches could undo a write of
  another client in between;
* a delete or eviction of one uid or resourceVersion. Without these, the call
  could hit a new object of the same name.

So a repeated write may end in AlreadyExists, Conflict or NotFound although the
first call succeeded. Callers read and decide anew on these errors anyway. A 429
from a disruption budget is an answer, not a sign of load. So is the error for a
resourceVersion that the server does not have yet: the server has already waited
for that version. A call without an answer is not repeated, because one timeout
is as long as a caller should wait.
"""

from collections.abc import Sequence
from typing import Any

from refloat.api.meta import Object
from refloat.base.rand import Rand
from refloat.client import errors
from refloat.client.contract import DeleteOptions, PatchType

FIRST_SECONDS = 0.25
LONGEST_SECONDS = 8.0

# After a longer Retry-After the call fails, and the caller can do something else meanwhile.
LONGEST_RETRY_AFTER = 30.0

_SERVER_ERRORS = range(500, 600)

# With these causes, an error that is usually temporary is an answer.
_BUDGET = "DisruptionBudget"
_TOO_NEW = "ResourceVersionTooLarge"


def is_repeatable_create(obj: Object) -> bool:
    return bool((obj.get("metadata") or {}).get("name"))


def is_repeatable_patch(patch: Object | Sequence[Any], patch_type: PatchType) -> bool:
    if patch_type == "apply":
        return True
    return isinstance(patch, dict) and bool((patch.get("metadata") or {}).get("resourceVersion"))


def is_repeatable_delete(options: DeleteOptions | None) -> bool:
    return options is not None and bool(options.uid or options.resource_version)


class Retries:
    """When to try again."""

    def __init__(self, rand: Rand, *, attempts: int) -> None:
        self._rand = rand
        self._attempts = attempts

    def wait(self, error: errors.ClientError, *, is_repeatable: bool, attempt: int) -> float | None:
        """Seconds until the next attempt after this one, counted from 1; None for no more."""
        match error:
            case errors.Unreachable():
                may_repeat = True
            case errors.TooManyRequests():
                may_repeat = not _has(error, _BUDGET)
            case errors.Unavailable():
                may_repeat = is_repeatable
            case errors.Timeout():
                is_answer = error.code not in _SERVER_ERRORS or _has(error, _TOO_NEW)
                may_repeat = is_repeatable and not is_answer
            case _:
                may_repeat = False
        retry_after = error.retry_after or 0.0
        if not may_repeat or attempt >= self._attempts or retry_after > LONGEST_RETRY_AFTER:
            return None
        backoff = min(FIRST_SECONDS * 2.0 ** (attempt - 1), LONGEST_SECONDS)
        return (
            self._rand.jitter(retry_after, 0.1)
            if retry_after > backoff
            else self._rand.jitter(backoff, 1.0)
        )


def _has(error: errors.ClientError, cause: str) -> bool:
    return any(each == cause for each, _, _ in error.causes)
