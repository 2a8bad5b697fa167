# SPDX-License-Identifier: Apache-2.0
"""Reads `kind: Configuration`, and refuses every field that Refloat does not know.

The file is YAML as Kubernetes reads YAML. A silent misreading is worse than an
error, so Refloat refuses keys that are repeated or are no text.
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
from refloat.policy.job.attempts import MAX_LOG_LINES, AttemptLogs
from refloat.policy.recovery.failure_recovery import FIELD, FailureRecoveryPolicy

API_VERSION = "config.refloat.dev/v1alpha1"
KIND = "Configuration"

# Repeated or ambiguous keys in one error; the others appear once these are corrected.
MAX_DOUBTS = 3

ATTEMPT_LOGS = "attemptLogs"

_FIELDS = ("apiVersion", "kind", "featureGates", ATTEMPT_LOGS, FIELD)


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a configuration file says."""

    feature_gates: dict[str, bool] = field(default_factory=dict)
    """The gates to switch, over their defaults; the command line overrides them."""
    failure_recovery: FailureRecoveryPolicy = field(default_factory=FailureRecoveryPolicy)
    """What Refloat may do about pods that are stuck on lost nodes."""
    attempt_logs: AttemptLogs = field(default_factory=AttemptLogs)
    """How much of the logs of failed pods the Job controller records."""
    document: dict[str, Any] = field(default_factory=dict, compare=False)
    """The whole decoded file, for `config.actors`."""


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
    """Check a decoded document; an error names the path of its field."""
    top = fields.mapping(document, "the document")
    _expect(top, "apiVersion", API_VERSION)
    _expect(top, "kind", KIND)
    fields.mapping(document, "the document", _FIELDS)
    feature_gates = _gates(top.get("featureGates"))
    recovery = failure_recovery.parse(top.get(FIELD))
    lines = fields.section(top, ATTEMPT_LOGS, "", ("lines",)).get("lines", 0)
    if isinstance(lines, bool) or not isinstance(lines, int) or not 0 <= lines <= MAX_LOG_LINES:
        text = f"a whole number from 0 to {MAX_LOG_LINES}"
        raise fields.wrong(f"{ATTEMPT_LOGS}.lines", lines, text)
    return Configuration(
        feature_gates=feature_gates,
        failure_recovery=recovery,
        attempt_logs=AttemptLogs(lines),
        document=top,
    )


def _expect(top: dict[str, Any], name: str, text: str) -> None:
    if top.get(name) != text:
        raise fields.wrong(name, top.get(name), repr(text))


def _gates(value: Any) -> dict[str, bool]:
    switches = fields.mapping(value if value is not None else {}, "featureGates")
    for name, switch in switches.items():
        fields.flag(switch, f"featureGates.{name}")
    try:
        gates.Gates(switches)
    except UsageError as error:
        raise ConfigError(f"featureGates: {error}") from error
    return switches
