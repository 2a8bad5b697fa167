# SPDX-License-Identifier: Apache-2.0
"""Reads `kind: Configuration`, and refuses what it does not understand."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from refloat.base import gates
from refloat.base.errors import UsageError
from refloat.config import failure_recovery, fields
from refloat.config.errors import ConfigError
from refloat.policy.failure_recovery import FIELD, FailureRecoveryPolicy

API_VERSION = "config.refloat.dev/v1alpha1"
KIND = "Configuration"


_FIELDS = ("apiVersion", "kind", "featureGates", FIELD)


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a configuration file says."""

    feature_gates: dict[str, bool] = field(default_factory=dict)
    """Which gates to switch, over their defaults; the command line's word is last."""
    failure_recovery: FailureRecoveryPolicy = field(default_factory=FailureRecoveryPolicy)
    """What may be done about pods that are stuck on lost nodes."""
    document: dict[str, Any] = field(default_factory=dict, compare=False)
    """All of it as it was written, for `announced`."""


def load(path: Path) -> Configuration:
    """Read a configuration file."""
    try:
        document = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not YAML: {' '.join(str(error).split())}") from error
    try:
        return parse(document)
    except UsageError as error:
        raise ConfigError(f"{path}: {error}") from error


def parse(document: Any) -> Configuration:
    """Check a decoded document; a mistake is told with its field's path."""
    found = fields.mapping(document, "the document")
    _expect(found, "apiVersion", API_VERSION)
    _expect(found, "kind", KIND)
    fields.mapping(document, "the document", _FIELDS)
    return Configuration(
        _gates(found.get("featureGates")), failure_recovery.parse(found.get(FIELD)), found
    )


def _expect(found: dict[str, Any], name: str, wanted: str) -> None:
    if found.get(name) != wanted:
        raise ConfigError(f"{name}: {found.get(name)!r}: expected {wanted!r}")


def _gates(value: Any) -> dict[str, bool]:
    found = fields.mapping(value if value is not None else {}, "featureGates")
    for name, switch in found.items():
        fields.flag(switch, f"featureGates.{name}")
    try:
        gates.Gates(found)
    except UsageError as error:
        raise ConfigError(f"featureGates: {error}") from error
    return found
