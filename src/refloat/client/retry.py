# SPDX-License-Identifier: Apache-2.0
"""Which calls are tried again, after which failures, and when.

The rule. A call is repeated when repeating cannot do more than one delivery
of it could:

| failure                               | any call | only a repeatable call |
|---------------------------------------|----------|------------------------|
| no connection (`Unreachable`)         | again    |                        |
| 429, but not a disruption budget's    | again    |                        |
| 5xx                                   |          | again                  |
| the connection broke after sending    |          | again                  |
| no answer in time; every other answer |          |                        |

Repeatable is what is harmless if the first one did arrive:

* every read;
* a create of a named object: the second meets `AlreadyExists`, and whoever
  asked reads what is there. With a generated name there would be two;
* an apply patch, and any patch object with a resourceVersion: the second
  changes nothing, or meets `Conflict`. Other patches could undo what
  somebody wrote in between;
* a delete or eviction of one uid or resourceVersion. Without, it could hit a
  new object of the same name.

So a repeated write may end in AlreadyExists, Conflict or NotFound although
it was this very call that did it; callers read and decide anew on those
anyway. A 429 from a disruption budget is an answer, not a sign of load, and
so is a resourceVersion that the server has not seen yet: it has waited for it
already. A hang is not repeated: one is as long as anybody wants to wait.
"""

from collections.abc import Sequence
from typing import Any

from refloat.api.meta import Object
from refloat.base.rand import Rand
from refloat.client import errors
from refloat.client.contract import DeleteOptions, PatchType

FIRST_SECONDS = 0.25
LONGEST_SECONDS = 8.0

# Who is told to wait for longer can do something else in the meantime.
LONGEST_RETRY_AFTER = 30.0

_SERVER_ERRORS = range(500, 600)

# Causes that make an answer out of what else would be a passing weakness.
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
        if attempt >= self._attempts or not _may_repeat(error, is_repeatable=is_repeatable):
            return None
        asked = error.retry_after or 0.0
        if asked > LONGEST_RETRY_AFTER:
            return None
        backoff = min(FIRST_SECONDS * 2.0 ** (attempt - 1), LONGEST_SECONDS)
        return self._rand.jitter(asked, 0.1) if asked > backoff else self._rand.jitter(backoff, 1.0)


def _may_repeat(error: errors.ClientError, *, is_repeatable: bool) -> bool:
    match error:
        case errors.Unreachable():
            return True
        case errors.TooManyRequests():
            return not _has(error, _BUDGET)
        case errors.Unavailable():
            return is_repeatable
        case errors.Timeout():
            return is_repeatable and error.code in _SERVER_ERRORS and not _has(error, _TOO_NEW)
        case _:
            return False


def _has(error: errors.ClientError, cause: str) -> bool:
    return any(each == cause for each, _, _ in error.causes)
