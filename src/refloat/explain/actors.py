# SPDX-License-Identifier: Apache-2.0
"""Which process of a cluster will act for a controller, or why none will.

Judged from the records that processes publish (`config.actors`) and from the
Lease of the controller's election, at one time. Liveness is an estimate: a
process can end in the next second. The ages stand in the text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from refloat.api import times
from refloat.api.coordination import Lease
from refloat.base.gates import FAILURE_RECOVERY_POLICY, TAINT_FORCE_EVICTION, Gates
from refloat.config import actors
from refloat.config.actors import Actor
from refloat.config.load import Configuration
from refloat.explain.explanation import Evidence, age
from refloat.policy.job import backoff
from refloat.policy.job.backoff import BackoffSettings

# Processes that are named one by one.
MAX_NAMES = 5

# Seconds that a Lease may be late beyond its duration: clocks differ.
LEASE_SLACK_SECONDS = 15

HIDDEN = (
    f"unknown: you may not read the ConfigMap {actors.NAMESPACE}/{actors.NAME},"
    " where each Refloat process publishes its configuration"
)
NONE_EVER = "no component will act; no Refloat process has reported to this cluster"

_GATES = {
    actors.FAILURE_RECOVERY: FAILURE_RECOVERY_POLICY,
    actors.FORCE_EVICTION: TAINT_FORCE_EVICTION,
}


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a cluster will do for one controller's objects."""

    configuration: Configuration | None = None
    """That of the process that acts; None if none does, or if it is not known."""
    text: str = HIDDEN
    """Why there is no configuration."""
    delays: BackoffSettings = backoff.DEFAULTS
    """The back-off delays of that process's Job controller."""
    points: Sequence[Evidence] = ()
    """Which process acts, and how old its last sign of life is."""


@dataclass(frozen=True, slots=True)
class Actors:
    """All processes that reported, and the Leases of their elections."""

    now: datetime
    """By the API server's clock, as far as it is known."""
    records: Sequence[Actor] | None = None
    """None if the asker may not read them."""
    leases: Mapping[str, Lease] = field(default_factory=dict)
    """By the name of the controller."""

    def outlook(self, controller: str, namespace: str = "") -> Outlook:
        """For objects of a namespace; nodes have none."""
        if self.records is None:
            return Outlook(text=HIDDEN)
        if not self.records:
            return Outlook(text=NONE_EVER)
        living = [each for each in self.records if each.is_alive(self.now)]
        if not living:
            last = self.records[0]
            end = f"{'stopped' if last.stopped else 'was seen'} {age(last.seen, self.now)} ago"
            return Outlook(text=f"no component will act; the last {_noun(last)} {end}")
        reasons = [(each, _why_not(each, controller, namespace)) for each in living]
        able = [each for each, why in reasons if not why]
        if not able:
            shown = "; ".join(f"{_name(each)} {why}" for each, why in reasons[:MAX_NAMES])
            return Outlook(text=f"no component will act: {shown}")
        leader = self._leader(controller)
        chosen = next((each for each in able if each.identity == leader), able[0])
        leads, reports = chosen.identity == leader, _reports(chosen, controller)
        if leader and not leads and not reports:
            # The holder of the Lease keeps those who would act from it.
            unknown = f"unknown: {leader} leads, and publishes no record"
            texts = (
                f"no component will act: {_name(each)} leads, and it {why}"
                for each, why in reasons
                if each.identity == leader
            )
            return Outlook(text=next(texts, unknown))
        role = "may take over; no process leads now"
        if controller not in actors.LEASES:
            role = "runs it"
        elif leads:
            role = "leads"
        elif reports:
            role = "reports, and forces nothing"
        text = f"{_name(chosen)} {role}; last seen {age(chosen.seen, self.now)} ago"
        delays = chosen.delays or backoff.DEFAULTS
        return Outlook(chosen.configuration, delays=delays, points=(Evidence("actor", text),))

    def _leader(self, controller: str) -> str:
        """The holder of a Lease that is renewed; empty if there is none."""
        lease = self.leases.get(controller)
        if lease is None or not lease.spec.holder_identity or not lease.spec.renew_time:
            return ""
        age = (self.now - times.parse(lease.spec.renew_time)).total_seconds()
        bound = (lease.spec.lease_duration_seconds or 0) + LEASE_SLACK_SECONDS
        return lease.spec.holder_identity if abs(age) <= bound else ""


def _why_not(actor: Actor, controller: str, namespace: str) -> str:
    """Why a living process does nothing for the controller's objects; empty if it acts."""
    if controller not in actor.controllers:
        return f"runs without {controller}"
    if actor.configuration is None:
        return "publishes no configuration that this version understands"
    gate = _GATES.get(controller)
    if gate and not Gates(actor.configuration.feature_gates).enabled(gate):
        return f"has the gate {gate} off"
    if actor.namespaces and namespace and namespace not in actor.namespaces:
        return f"acts only in {', '.join(actor.namespaces)}"
    return ""


def _reports(actor: Actor, controller: str) -> bool:
    """Whether it needs no election, because it forces nothing."""
    configuration = actor.configuration
    if configuration is None or controller != actors.FAILURE_RECOVERY:
        return False
    return configuration.failure_recovery.mode == "Report"


def _noun(actor: Actor) -> str:
    return "embedded cluster process" if actor.kind == "embedded" else actor.kind


def _name(actor: Actor) -> str:
    return f"{_noun(actor)} {actor.identity}"
