# SPDX-License-Identifier: Apache-2.0
"""What each Refloat process of a cluster publishes about itself, for `refloat explain`.

Gates and rules are not API objects, so each process writes a record with its
configuration into one ConfigMap, and renews it: the age of the record says
whether the process is alive. No controller reads a record. A lost or false one
changes the answer of `refloat explain` and nothing else.

All records and all Leases of elections are in `kube-system`: each cluster has
that namespace, and tenants cannot write there. A ConfigMap with the same name
in another namespace is never read.
"""

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import yaml

from refloat.api import durations, times
from refloat.api.meta import Object
from refloat.base.gates import KNOWN, Gates
from refloat.config import load
from refloat.config.failure_recovery import NODE_GRACE
from refloat.config.load import API_VERSION, KIND, Configuration
from refloat.policy.job.backoff import BackoffSettings
from refloat.policy.recovery import node_evidence
from refloat.policy.recovery.failure_recovery import FIELD

NAMESPACE = "kube-system"
NAME = "refloat-actors"
"""The ConfigMap with one key for each process. Rights can be given for one name only, so the
records share an object."""

FAILURE_RECOVERY = "failure-recovery-controller"
FORCE_EVICTION = "force-eviction-controller"

LEASES = {
    FAILURE_RECOVERY: "refloat-failure-recovery",
    FORCE_EVICTION: "refloat-force-eviction",
}
"""The Lease of each controller that forces: its holder is the one process that may."""

HEARTBEAT_SECONDS = 30.0
"""How often a process renews the record: two writes a minute are no load."""

ALIVE_HEARTBEATS = 3
"""So many missed renewals mean that a process is gone. One may be late, and clocks differ."""

MAX_RECORDS = 20
"""Records that stay; the oldest go first. With `MAX_BYTES` each they fit into one ConfigMap."""

MAX_BYTES = 16_000
"""Of one record. A longer one is published without its configuration."""

_KEY_CHARACTERS = re.compile(r"[^-._a-zA-Z0-9]")
_MAX_KEY = 253


@dataclass(frozen=True, slots=True)
class Actor:
    """One process, as it describes itself."""

    identity: str
    kind: str
    """`manager`, or `embedded` for `refloat up`."""
    seen: datetime
    """When the process last renewed the record, by the process's own clock."""
    controllers: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    """Where the process acts; none is everywhere."""
    stopped: bool = False
    """Whether the process reported its own end."""
    delays: BackoffSettings | None = None
    """The back-off delays of its Job controller; None if they are not known."""
    configuration: Configuration | None = field(default=None, compare=False)
    """None if it could not be published, or cannot be understood."""

    def age(self, now: datetime) -> timedelta:
        return now - self.seen

    def is_alive(self, now: datetime) -> bool:
        """A record from the future counts no longer than one from the past."""
        silent = abs(self.age(now).total_seconds())
        return not self.stopped and silent <= ALIVE_HEARTBEATS * HEARTBEAT_SECONDS


def key(identity: str) -> str:
    """The key of a process in the ConfigMap."""
    return _KEY_CHARACTERS.sub("-", identity)[-_MAX_KEY:]


def configuration(
    document: Object,
    gates: Gates,
    default_period: timedelta,
    node_grace: timedelta = node_evidence.GRACE_PERIOD,
) -> Object:
    """A file's content, with all gates and the periods that have defaults."""
    policy = dict(document.get(FIELD) or {})
    if policy.get(NODE_GRACE) is None:
        policy[NODE_GRACE] = durations.show(node_grace)
    annotated = {"forcefulTerminationGracePeriod": durations.show(default_period)}
    explicit = {name: value for name, value in (policy.get("annotated") or {}).items() if value}
    policy["annotated"] = annotated | explicit
    switches = {gate.name: gates.enabled(gate.name) for gate in KNOWN}
    return {"apiVersion": API_VERSION, "kind": KIND, "featureGates": switches, FIELD: policy}


def write(actor: Actor, document: Object) -> str:
    """The record of a process; `document` is made by `configuration`."""
    record: Object = {
        "identity": actor.identity,
        "kind": actor.kind,
        "seen": times.format_time(actor.seen),
        "controllers": list(actor.controllers),
        "namespaces": list(actor.namespaces),
        "stopped": actor.stopped,
    }
    if actor.delays is not None:
        fields = BackoffSettings.__dataclass_fields__
        record["jobBackOff"] = {
            name: durations.show(getattr(actor.delays, name)) for name in fields
        }
    text = yaml.safe_dump({**record, "configuration": document}, sort_keys=False)
    return text if len(text) <= MAX_BYTES else yaml.safe_dump(record, sort_keys=False)


def read(data: Mapping[str, str] | None) -> list[Actor]:
    """The processes that a ConfigMap names, the one seen last first; bad records are left out."""
    records = (_actor(text) for _, text in sorted((data or {}).items())[: 2 * MAX_RECORDS])
    actors = [actor for actor in records if actor is not None]
    return sorted(actors, key=lambda actor: actor.seen, reverse=True)


def oldest(data: Mapping[str, str], keep: str) -> list[str]:
    """The keys that are too many, without `keep`: those that were seen longest ago."""
    spare = len(data) - MAX_RECORDS
    if spare <= 0:
        return []
    ages = {name: _seen(text) for name, text in data.items() if name != keep}
    return sorted(ages, key=lambda name: (ages[name], name))[:spare]


def _seen(text: str) -> str:
    actor = _actor(text)
    return "" if actor is None else times.format_time(actor.seen)


def _actor(text: str) -> Actor | None:
    try:
        # PyYAML, because `write` uses PyYAML. A configuration file goes through goyaml, which
        # quotes texts differently.
        record = yaml.safe_load(text) if len(text) <= 2 * MAX_BYTES else None
        return None if record is None else _parse(record)
    except Exception:
        # An administrator may have edited the record, and PyYAML raises errors of many classes.
        return None


def _delays(fields: object) -> BackoffSettings | None:
    """None unless all are positive durations."""
    if not isinstance(fields, dict):
        return None
    known = {}
    for name in BackoffSettings.__dataclass_fields__:
        length = durations.parse(str(fields.get(name, "")))
        if length is None or length <= timedelta(0):
            return None
        known[name] = length
    return BackoffSettings(**known)


def _parse(record: dict[str, Any]) -> Actor:
    configuration: Configuration | None = None
    with contextlib.suppress(Exception):
        configuration = load.parse(record.get("configuration"))
    return Actor(
        delays=_delays(record.get("jobBackOff")),
        identity=str(record["identity"]),
        kind=str(record["kind"]),
        seen=times.parse(str(record["seen"])),
        controllers=tuple(map(str, record.get("controllers") or ())),
        namespaces=tuple(map(str, record.get("namespaces") or ())),
        stopped=bool(record.get("stopped")),
        configuration=configuration,
    )
