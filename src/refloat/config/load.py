# SPDX-License-Identifier: Apache-2.0
"""Reads `kind: Configuration`, and refuses what it does not understand.

Words mean what they mean in the YAML of Kubernetes, so that nobody has to know
two kinds. What is read silently in another way than it was meant is worse than
what is refused: a key may stand once, and must be a text.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from refloat.api import goyaml
from refloat.base import gates
from refloat.base.errors import UsageError
from refloat.config import failure_recovery, fields
from refloat.config.errors import ConfigError
from refloat.policy.failure_recovery import FIELD, FailureRecoveryPolicy

API_VERSION = "config.refloat.dev/v1alpha1"
KIND = "Configuration"

# Keys that are told of one by one: whoever mends these sees the others next.
MAX_DOUBTS = 3

_FIELDS = ("apiVersion", "kind", "featureGates", FIELD)


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a configuration file says."""

    feature_gates: dict[str, bool] = field(default_factory=dict)
    """Which gates to switch, over their defaults; the command line's word is last."""
    failure_recovery: FailureRecoveryPolicy = field(default_factory=FailureRecoveryPolicy)
    """What may be done about pods that are stuck on lost nodes."""
    document: dict[str, Any] = field(default_factory=dict, compare=False)
    """All of it as it was written, for `config.actors`."""


def load(path: Path) -> Configuration:
    """Read a configuration file."""
    try:
        return parse(_document(path.read_text()))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not YAML: {' '.join(str(error).split())}") from error
    except (goyaml.YamlProblem, UsageError) as error:
        raise ConfigError(f"{path}: {error}") from error
    except RecursionError:
        raise ConfigError(f"{path}: is nested too deeply") from None


def _document(text: str) -> Any:
    events = yaml.parse(text, Loader=yaml.CSafeLoader)
    count = sum(isinstance(each, yaml.DocumentStartEvent) for each in events)
    if count > 1:
        raise ConfigError(f"expected one document, found {count}")
    value, doubts = goyaml.parse_sure(text.encode())
    if doubts:
        raise ConfigError("; ".join(doubts[:MAX_DOUBTS]))
    return value


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
        raise fields.wrong(name, found.get(name), repr(wanted))


def _gates(value: Any) -> dict[str, bool]:
    found = fields.mapping(value if value is not None else {}, "featureGates")
    for name, switch in found.items():
        fields.flag(switch, f"featureGates.{name}")
    try:
        gates.Gates(found)
    except UsageError as error:
        raise ConfigError(f"featureGates: {error}") from error
    return found
