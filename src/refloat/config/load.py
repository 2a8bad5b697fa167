# SPDX-License-Identifier: Apache-2.0
"""Reads `kind: Configuration`, and refuses what it does not understand."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from refloat.base import gates
from refloat.base.errors import UsageError
from refloat.config.errors import ConfigError

API_VERSION = "config.refloat.dev/v1alpha1"
KIND = "Configuration"


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a configuration file says."""

    feature_gates: dict[str, bool] = field(default_factory=dict)
    """Which gates to switch, over their defaults; the command line's word is last."""


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
    fields = _mapping(document, "the document")
    _expect(fields, "apiVersion", API_VERSION)
    _expect(fields, "kind", KIND)
    for name in fields:
        if name not in ("apiVersion", "kind", "featureGates"):
            raise ConfigError(f"{name}: unknown field; known are: apiVersion, kind, featureGates")
    return Configuration(_gates(fields.get("featureGates")))


def _expect(fields: dict[str, Any], name: str, wanted: str) -> None:
    if fields.get(name) != wanted:
        raise ConfigError(f"{name}: {fields.get(name)!r}: expected {wanted!r}")


def _mapping(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: {value!r}: expected a mapping")
    return value


def _gates(value: Any) -> dict[str, bool]:
    found = _mapping(value if value is not None else {}, "featureGates")
    for name, switch in found.items():
        if not isinstance(switch, bool):
            raise ConfigError(f"featureGates.{name}: {switch!r}: expected true or false")
    try:
        gates.Gates(found)
    except UsageError as error:
        raise ConfigError(f"featureGates: {error}") from error
    return found
