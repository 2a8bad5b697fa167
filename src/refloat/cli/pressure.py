# SPDX-License-Identifier: Apache-2.0
"""The options that say when a node evicts its pods, and how it shuts down.

Names and forms are a kubelet's, so that what is known of one serves here.
"""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from refloat.base.errors import UsageError
from refloat.policy.eviction_thresholds import DISK, MEMORY, EvictionSettings
from refloat.policy.node_shutdown import ShutdownSettings

F = TypeVar("F", bound=Callable[..., Any])

# A kubelet wants a tenth of the disk free; many a machine that people work on never has that.
_HARD = f"{MEMORY}<100Mi,{DISK}<1Gi"

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")

_OPTIONS = (
    click.option(
        "--eviction-hard",
        default=_HARD,
        show_default=True,
        help="Evict pods at once when there is less of memory.available, nodefs.available or "
        "pid.available.",
    ),
    click.option(
        "--eviction-soft",
        default="",
        help="The same, when there was less for some time: 'memory.available<1Gi'.",
    ),
    click.option(
        "--eviction-soft-grace-period",
        default="",
        help="For how long, for each soft threshold: 'memory.available=1m30s'.",
    ),
    click.option(
        "--eviction-max-pod-grace-period",
        type=click.IntRange(min=0),
        default=0,
        help="Seconds that a soft threshold gives pods to end, if they want no less.",
    ),
    click.option(
        "--eviction-minimum-reclaim",
        default="",
        help="How much more than a threshold is enough again: 'memory.available=100Mi'.",
    ),
    click.option(
        "--eviction-pressure-transition-period",
        default="5m",
        show_default=True,
        help="How long the node says to be low after it last was.",
    ),
    click.option(
        "--shutdown-grace-period",
        default="30s",
        show_default=True,
        help="How long pods have to end when the node shuts down.",
    ),
    click.option(
        "--shutdown-grace-period-critical-pods",
        default="10s",
        show_default=True,
        help="The last part of that, for critical pods.",
    ),
)


def options(command: F) -> F:
    """All of them, as keyword arguments of a command."""
    for each in reversed(_OPTIONS):
        command = each(command)
    return command


def eviction(given: dict[str, Any]) -> EvictionSettings:
    """What the options say; raises `UsageError`."""
    graces = _pairs(given, "eviction_soft_grace_period", "=")
    settings = EvictionSettings(
        hard=_pairs(given, "eviction_hard", "<"),
        soft=_pairs(given, "eviction_soft", "<"),
        soft_grace_seconds={
            signal: seconds(text, "--eviction-soft-grace-period") for signal, text in graces.items()
        },
        minimum_reclaim=_pairs(given, "eviction_minimum_reclaim", "="),
        max_pod_grace_seconds=given["eviction_max_pod_grace_period"],
        transition_seconds=_duration(given, "eviction_pressure_transition_period"),
    )
    settings.thresholds()  # tells of mistakes before anything is started
    return settings


def shutdown(given: dict[str, Any]) -> ShutdownSettings:
    """What the options say; raises `UsageError`."""
    total = int(_duration(given, "shutdown_grace_period"))
    critical = int(_duration(given, "shutdown_grace_period_critical_pods"))
    if critical > total:
        raise UsageError(
            f"--shutdown-grace-period-critical-pods {critical}s is more than "
            f"--shutdown-grace-period {total}s"
        )
    return ShutdownSettings(total, critical)


def _pairs(given: dict[str, Any], key: str, sign: str) -> dict[str, str]:
    """`a<1,b<2` or `a=1,b=2`."""
    found: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in given[key].split(","))):
        signal, between, text = part.partition(sign)
        if not between or not signal or not text or signal in found:
            raise UsageError(f"{_flag(key)} {part!r}: expected SIGNAL{sign}AMOUNT, each once")
        found[signal] = text
    return found


def _duration(given: dict[str, Any], key: str) -> float:
    return seconds(given[key], _flag(key))


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")


def seconds(text: str, where: str) -> float:
    """`90s`, `1m30s`, `0`."""
    if text == "0":
        return 0.0
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise UsageError(f"{where} {text!r}: expected a duration such as 90s or 1m30s")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)
