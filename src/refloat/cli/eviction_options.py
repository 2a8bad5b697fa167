# SPDX-License-Identifier: Apache-2.0
"""The options of the agent for eviction and shutdown.

Names and formats are those of the kubelet's flags.
"""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from refloat.base.errors import UsageError
from refloat.policy.node.eviction_thresholds import DISK, MEMORY, EvictionSettings
from refloat.policy.node.node_shutdown import ShutdownSettings

F = TypeVar("F", bound=Callable[..., Any])

# The kubelet's default is a tenth of the disk; many laptops never have that much free space.
_HARD = f"{MEMORY}<100Mi,{DISK}<1Gi"

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")

_OPTIONS = (
    click.option(
        "--eviction-hard",
        default=_HARD,
        show_default=True,
        help="Evict pods at once below these amounts of memory.available, nodefs.available and "
        "pid.available.",
    ),
    click.option(
        "--eviction-soft",
        default="",
        help="Evict pods after a grace period below these amounts: 'memory.available<1Gi'.",
    ),
    click.option(
        "--eviction-soft-grace-period",
        default="",
        help="The grace period of each soft threshold: 'memory.available=1m30s'.",
    ),
    click.option(
        "--eviction-max-pod-grace-period",
        type=click.IntRange(min=0),
        default=0,
        help="The longest termination grace period of pods that a soft threshold evicts, in "
        "seconds. [default: 0]",
    ),
    click.option(
        "--eviction-minimum-reclaim",
        default="",
        help="Evict until this much more than the threshold is free: 'memory.available=100Mi'.",
    ),
    click.option(
        "--eviction-pressure-transition-period",
        default="5m",
        show_default=True,
        help="How long the node keeps a pressure condition after the pressure ends.",
    ),
    click.option(
        "--shutdown-grace-period",
        default="30s",
        show_default=True,
        help="How long a shutdown of the node waits for all pods to end.",
    ),
    click.option(
        "--shutdown-grace-period-critical-pods",
        default="10s",
        show_default=True,
        help="The part of that time, at the end, that is for critical pods alone.",
    ),
)


def options(command: F) -> F:
    """Add all of these options to a command, as keyword arguments."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def eviction(flags: dict[str, Any]) -> EvictionSettings:
    """Read the flags of eviction; raises `UsageError`."""
    graces = _pairs(flags, "eviction_soft_grace_period", "=")
    settings = EvictionSettings(
        hard=_pairs(flags, "eviction_hard", "<"),
        soft=_pairs(flags, "eviction_soft", "<"),
        soft_grace_seconds={
            signal: seconds(text, "--eviction-soft-grace-period") for signal, text in graces.items()
        },
        minimum_reclaim=_pairs(flags, "eviction_minimum_reclaim", "="),
        max_pod_grace_seconds=flags["eviction_max_pod_grace_period"],
        transition_seconds=_duration(flags, "eviction_pressure_transition_period"),
    )
    settings.thresholds()  # raises for mistakes before anything starts
    return settings


def shutdown(flags: dict[str, Any]) -> ShutdownSettings:
    """Read the flags of shutdown; raises `UsageError`."""
    total = int(_duration(flags, "shutdown_grace_period"))
    critical = int(_duration(flags, "shutdown_grace_period_critical_pods"))
    if critical > total:
        raise UsageError(
            f"--shutdown-grace-period-critical-pods {critical}s is more than "
            f"--shutdown-grace-period {total}s"
        )
    return ShutdownSettings(total, critical)


def _pairs(flags: dict[str, Any], key: str, sign: str) -> dict[str, str]:
    """Read `a<1,b<2` or `a=1,b=2`."""
    amounts: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in flags[key].split(","))):
        signal, between, text = part.partition(sign)
        if not between or not signal or not text or signal in amounts:
            raise UsageError(f"{_flag(key)} {part!r}: expected SIGNAL{sign}AMOUNT, each once")
        amounts[signal] = text
    return amounts


def _duration(flags: dict[str, Any], key: str) -> float:
    return seconds(flags[key], _flag(key))


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")


def seconds(text: str, where: str) -> float:
    """Read a duration: `90s`, `1m30s`, `0`."""
    if text == "0":
        return 0.0
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise UsageError(f"{where} {text!r}: expected a duration such as 90s or 1m30s")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)
