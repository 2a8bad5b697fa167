# SPDX-License-Identifier: Apache-2.0
"""When a node is low on a resource, by a kubelet's settings.

This module parses the thresholds, with a kubelet's error messages; `kubelet_eviction` applies them.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from refloat.api import quantity
from refloat.api.quantity import Quantity, QuantityError
from refloat.base.errors import UsageError

MEMORY, DISK, PIDS = "memory.available", "nodefs.available", "pid.available"

SIGNALS = (MEMORY, DISK, PIDS)
"""Memory comes first: a node without memory fails first."""

# The resource that a message names.
RESOURCES = {MEMORY: "memory", DISK: "ephemeral-storage", PIDS: "pids"}

CONDITIONS = {MEMORY: "MemoryPressure", DISK: "DiskPressure", PIDS: "PIDPressure"}

_HARD = {MEMORY: "100Mi", DISK: "10%"}


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount, or a share of the capacity."""

    quantity: Quantity | None = None
    share: float = 0.0

    def of(self, capacity: int) -> Quantity:
        if self.quantity is not None:
            return self.quantity
        return Quantity(int(capacity * self.share), 0, "BinarySI")


@dataclass(frozen=True, slots=True)
class Threshold:
    """Less than this is too little."""

    signal: str
    amount: Amount
    grace_seconds: float = 0.0
    """How long the threshold must be met before an eviction; 0 makes a hard threshold."""

    reclaim: Amount | None = None
    """How much more than the amount must be free again."""

    @property
    def is_hard(self) -> bool:
        return self.grace_seconds == 0

    def is_met(self, available: int, capacity: int, *, until_reclaimed: bool = False) -> bool:
        least: int | Fraction = self.amount.of(capacity).value
        if until_reclaimed and self.reclaim is not None:
            least += self.reclaim.of(capacity).value
        return least > available


@dataclass(frozen=True, slots=True)
class EvictionSettings:
    """When a node evicts pods for its own health. Names and defaults are a kubelet's."""

    hard: Mapping[str, str] = field(default_factory=lambda: dict(_HARD))
    """By signal: below this amount, or share of the capacity, pods are evicted at once."""

    soft: Mapping[str, str] = field(default_factory=dict)
    """The same, after the grace period."""

    soft_grace_seconds: Mapping[str, float] = field(default_factory=dict)
    """How long a soft threshold must be met; required for each soft threshold."""

    minimum_reclaim: Mapping[str, str] = field(default_factory=dict)
    """How much more than the threshold must be free until the pressure ends."""

    max_pod_grace_seconds: int = 0
    """The longest grace of a pod that a soft threshold evicts."""

    transition_seconds: float = 300.0
    """How long the condition stays after the pressure ended, so that it does not flap."""

    monitoring_seconds: float = 10.0
    """Seconds between two checks."""

    def thresholds(self) -> tuple[Threshold, ...]:
        """All of them, memory's first; raises `UsageError`."""
        reclaims = _each(self.minimum_reclaim, "evictionMinimumReclaim")
        hard = _each(self.hard, "evictionHard")
        soft = _each(self.soft, "evictionSoft")
        limits = [Threshold(each, hard[each]) for each in hard]
        limits += [Threshold(each, soft[each], self._grace(each)) for each in soft]
        limits.sort(key=lambda each: SIGNALS.index(each.signal))
        return tuple(
            Threshold(each.signal, each.amount, each.grace_seconds, reclaims.get(each.signal))
            for each in limits
        )

    def _grace(self, signal: str) -> float:
        seconds = self.soft_grace_seconds.get(signal)
        if seconds is None:
            raise UsageError(
                f"grace period must be specified for the soft eviction threshold {signal}"
            )
        if seconds < 0:
            raise UsageError(f"evictionSoftGracePeriod[{signal}]: {seconds:g} must not be negative")
        return seconds


def _each(texts: Mapping[str, str], where: str) -> dict[str, Amount]:
    amounts = {signal: _amount(signal, text, where) for signal, text in texts.items()}
    return {signal: amount for signal, amount in amounts.items() if amount is not None}


def _amount(signal: str, text: str, where: str) -> Amount | None:
    """The amount; None for a disabled threshold: 0 % or 100 % of the capacity."""
    if signal not in SIGNALS:
        raise UsageError(
            f"{where}: unsupported eviction signal {signal}; known are {', '.join(SIGNALS)}"
        )
    if text in ("0%", "100%"):
        return None
    try:
        if text.endswith("%"):
            return Amount(share=_share(text))
        parsed = quantity.parse(text)
    except (QuantityError, ValueError) as error:
        raise UsageError(f"{where}[{signal}]: {text!r}: {error}") from error
    if parsed.value <= 0:
        raise UsageError(f"{where}[{signal}]: eviction threshold must be positive: {text}")
    return Amount(parsed)


def _share(text: str) -> float:
    """The share with the precision of a kubelet, whose messages show it."""
    percent = float(text[:-1])
    if not 0 <= percent <= 100:
        raise ValueError("expected 0% to 100%")
    narrow: float
    (percent,) = struct.unpack("f", struct.pack("f", percent))
    (narrow,) = struct.unpack("f", struct.pack("f", percent / 100))
    return narrow
