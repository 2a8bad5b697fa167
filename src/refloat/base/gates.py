# SPDX-License-Identifier: Apache-2.0
"""Feature gates: listed once, injected everywhere, never global."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from refloat.base.errors import UsageError


@dataclass(frozen=True, slots=True)
class Gate:
    """A feature gate, with its stage and KEP."""

    name: str
    default: bool
    stage: Literal["alpha", "stable"]
    kep: str


FAILURE_RECOVERY_POLICY = "FailureRecoveryPolicy"
JOB_POD_FAILURE_POLICY = "JobPodFailurePolicy"
JOB_POD_REPLACEMENT_POLICY = "JobPodReplacementPolicy"
POD_DISRUPTION_CONDITIONS = "PodDisruptionConditions"
RETRIABLE_AND_NON_RETRIABLE_FAILURES = "RetriableAndNonRetriableFailures"
TAINT_FORCE_EVICTION = "TaintForceEviction"

KNOWN = (
    Gate(FAILURE_RECOVERY_POLICY, default=False, stage="alpha", kep="6757"),
    Gate(JOB_POD_FAILURE_POLICY, default=True, stage="stable", kep="3329"),
    Gate(JOB_POD_REPLACEMENT_POLICY, default=True, stage="stable", kep="3939"),
    Gate(POD_DISRUPTION_CONDITIONS, default=True, stage="stable", kep="3329"),
    Gate(
        RETRIABLE_AND_NON_RETRIABLE_FAILURES,
        default=False,
        stage="alpha",
        kep="3329, first design",
    ),
    Gate(TAINT_FORCE_EVICTION, default=False, stage="alpha", kep="36"),
)

_DEFAULTS = {gate.name: gate.default for gate in KNOWN}


class Gates:
    """The gates of one component."""

    def __init__(self, overrides: Mapping[str, bool] | None = None) -> None:
        for name in overrides or {}:
            if name not in _DEFAULTS:
                raise UsageError(
                    f"unknown feature gate {name!r}; known are: {', '.join(sorted(_DEFAULTS))}"
                )
        self._values = {**_DEFAULTS, **(overrides or {})}

    def enabled(self, name: str) -> bool:
        return self._values[name]

    def __repr__(self) -> str:
        return ",".join(f"{name}={str(on).lower()}" for name, on in sorted(self._values.items()))


def parse(text: str) -> dict[str, bool]:
    """Read `Name=true,Other=false`, the value of `--feature-gates`."""
    overrides: dict[str, bool] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals or value.lower() not in ("true", "false"):
            raise UsageError(f"feature gate {part!r}: expected Name=true or Name=false")
        overrides[name.strip()] = value.lower() == "true"
    return overrides
