# SPDX-License-Identifier: Apache-2.0
"""The pods that are due and not freed, by reason: for the gauge that alerts read.

Each decision on a pod sets its reason here, so a scrape only counts.
"""

from datetime import datetime
from functools import partial

from refloat.base.clock import Clock
from refloat.controllers.failure_recovery.budget_queue import BUDGET, NODES
from refloat.controllers.failure_recovery.metrics import FailureRecoveryMetrics
from refloat.policy.recovery.zombie import Awaited, Reason

REPORT = "Report"
WRITE_FAILED = "WriteFailed"

REASONS: tuple[str, ...] = (
    BUDGET,
    NODES,
    REPORT,
    WRITE_FAILED,
    Awaited.LEASE.value,
    Awaited.SELF_FENCE.value,
    Reason.NODE_READY.value,
    Reason.NO_CONDITION.value,
    Reason.NO_LEASE.value,
    Reason.NOT_ARMED.value,
    Reason.NOT_OPTED_IN.value,
    Reason.NAMESPACE.value,
)
"""All values of the label `reason`. Pods that are left alone for another reason are not stuck on
a lost node."""


class DuePods:
    """Keys of pods by reason, each with the time from which the pod is due."""

    def __init__(self, clock: Clock, metrics: FailureRecoveryMetrics) -> None:
        self._clock = clock
        self._reasons: dict[str, str] = {}
        self._times: dict[str, dict[str, datetime]] = {each: {} for each in REASONS}
        for each in REASONS:
            metrics.read_due(each, partial(self.count, each))

    def set(self, key: str, reason: str, since: datetime) -> None:
        """The pod is due from `since` on; `reason` says why Refloat has not freed the pod."""
        self.remove(key)
        if reason in self._times:
            self._reasons[key] = reason
            self._times[reason][key] = since

    def remove(self, key: str) -> None:
        """The pod is freed, deleted, or no longer stuck on a lost node."""
        reason = self._reasons.pop(key, None)
        if reason is not None:
            del self._times[reason][key]

    def clear(self) -> None:
        self._reasons.clear()
        for each in self._times.values():
            each.clear()

    def count(self, reason: str) -> int:
        now = self._clock.now()
        return sum(since <= now for since in self._times[reason].values())
