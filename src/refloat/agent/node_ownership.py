# SPDX-License-Identifier: Apache-2.0
"""Which process owns a node: an identity in the node's Lease that only one process can have.

The identity is the agent's instance, which stays the same over restarts on one
folder, and its incarnation, which is new for each process. Each write of the
Lease carries the identity and the resourceVersion that the writer last saw.
From both follows what a Lease proves:

1. A Lease with our own identity is ours, with any version and renewTime: the API
   server may have applied a renewal that timed out.
2. A Lease with another identity may be the last write of a dead process. All late
   writes of a dead process have one version, so the API server applies at most one
   of them. A second write needs a living process that has read the first one.
3. So if another identity renews the Lease `PROOF_RENEWALS` times while we watch, the
   Lease has another living owner (`OwnedByAnother`).
4. If another identity does not renew the Lease for the lease's duration while we
   watch, the Lease has no living owner, and we take the Lease. If the Lease lists
   pods that end by themselves (`api.self_fence`), they may run without their agent.
   Then we wait until the last of them is dead.
5. The deletion of a Lease proves nothing, because the owner creates the Lease again
   with the next renewal. We wait for as long as in 4.

Between 3 and 4 the owner is not known (`Unsure`). Errors and answers that make no
sense prove nothing. This module never uses the value of a renewTime, because the
clocks of two machines seldom agree.

This module only decides; `node_lease` sends the requests.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from refloat.api import self_fence
from refloat.api.coordination import Lease
from refloat.base.clock import Clock
from refloat.base.errors import RefloatError
from refloat.client import errors
from refloat.runtime.errors import Retry
from refloat.runtime.lease_observer import PolledSilence

ANNOTATION = "refloat.dev/agent"
"""On the Lease of a node: the identity of its owner."""

# The duration of a Lease that has none: a kubelet's.
DEFAULT_SECONDS = 40

# Reads of a Lease while it runs out under another identity.
READS = 8

# A pause between two reads counts as silence for at most this many usual pauses.
MAX_PAUSES = 2.0

# Renewals under another identity that prove a living owner: the first may be the last write of
# a dead process, the second cannot.
PROOF_RENEWALS = 2


class OwnedByAnother(RefloatError):
    """Another living process owns this node."""


class Unsure(Retry):
    """The Lease has another identity, and its owner may live."""

    def __init__(self, message: str, *, seconds: float, duration: float) -> None:
        """`seconds`: the silence that proves a dead owner. `duration`: that of the Lease."""
        super().__init__(message, after=duration / READS)
        self.seconds = seconds


class StrangeLease(Retry):
    """An answer is no Lease of this node and proves nothing."""


@dataclass(frozen=True, slots=True)
class AgentIdentity:
    """One process, on one folder."""

    instance: str
    """The same over restarts on one folder."""
    incarnation: str = ""
    """New for each process; empty for older agents."""

    def __str__(self) -> str:
        return f"{self.instance}/{self.incarnation}"


def identity_of(lease: Lease) -> AgentIdentity:
    """The identity of the last writer of a Lease; a kubelet writes none."""
    instance, _, incarnation = (lease.metadata.annotations or {}).get(ANNOTATION, "").partition("/")
    return AgentIdentity(instance, incarnation)


def duration_of(lease: Lease) -> float:
    """The duration of a Lease in seconds."""
    return float(lease.spec.lease_duration_seconds or DEFAULT_SECONDS)


def silence_of(lease: Lease) -> float:
    """Seconds after the last renewal until the pods of a dead owner are dead.

    Only pods that end by themselves count: others run for as long as their machine.
    """
    promises = self_fence.read_listed(lease).values()
    return max([duration_of(lease), *(self_fence.dead_seconds(each) for each in promises)])


@dataclass(slots=True)
class _Rival:
    """Another identity in the Lease, and its renewals so far."""

    renewal: tuple[AgentIdentity, str]  # identity and renewTime
    silence: PolledSilence
    duration: float  # of the Lease
    needed: float  # seconds of silence that prove a dead owner
    is_absent: bool = False  # whether the Lease did not exist at the last read
    renewals: int = 0  # while we watched

    @property
    def longest_pause(self) -> float:
        """Seconds of one pause between two reads that count as silence."""
        return MAX_PAUSES * self.duration / READS


class Ownership:
    """What one process knows about the owner of one node; times are monotonic seconds."""

    def __init__(self, name: str, identity: AgentIdentity) -> None:
        self._name = name
        self.identity = identity
        self._rival: _Rival | None = None
        self._has_owned = False
        self._owns = False

    @property
    def is_sure(self) -> bool:
        """Whether this process owned the Lease at the last answer."""
        return self._owns

    def judge(self, lease: Lease, *, sent_at: float, now: float) -> None:
        """Return if this process may renew or take that Lease; raises `OwnedByAnother` or `Unsure`.

        `sent_at`: when the read was sent.
        """
        self.check(lease)
        identity = identity_of(lease)
        if identity == self.identity:
            self._rival, self._owns, self._has_owned = None, True, True
            return
        self._owns = False
        if identity.instance == self.identity.instance and not self._has_owned:
            return  # the owner was the previous process on our folder, which is dead
        rival = self._watch(identity, lease, sent_at=sent_at, now=now)
        if rival.renewals >= PROOF_RENEWALS:
            raise OwnedByAnother(self._name)
        text = f"node {self._name}: its lease has another identity, {identity}"
        self._check_silence(rival, text)

    def judge_absence(self, *, sent_at: float, now: float) -> None:
        """Return if this process may create the missing Lease; raises `Unsure`."""
        rival = self._rival
        if rival is None:
            return  # the Lease never had another identity while we watched
        if rival.is_absent:
            rival.silence.unchanged(sent_at=sent_at, now=now, most=rival.longest_pause)
        else:
            # The owner may have renewed the Lease before the deletion, unseen by us.
            rival.is_absent = True
            rival.silence.changed(now)
        text = f"node {self._name}: its lease was deleted, and had another identity"
        self._check_silence(rival, text)

    def _check_silence(self, rival: _Rival, text: str) -> None:
        if rival.silence.seconds < rival.needed:
            raise Unsure(text, seconds=rival.needed, duration=rival.duration)

    def _watch(
        self, identity: AgentIdentity, lease: Lease, *, sent_at: float, now: float
    ) -> _Rival:
        renewal = (identity, lease.spec.renew_time or "")
        duration, rival = duration_of(lease), self._rival
        if rival is None:
            rival = self._rival = _Rival(renewal, PolledSilence(now), duration, duration)
        elif rival.renewal != renewal:
            rival.renewal = renewal
            rival.silence.changed(now)
            rival.renewals += 1
        else:
            rival.silence.unchanged(sent_at=sent_at, now=now, most=rival.longest_pause)
        # If someone removed our identity from the Lease, it lists our own promises. To wait for
        # them would end these pods.
        is_own_list = self._has_owned and not identity.instance and not rival.renewals
        rival.duration, rival.needed = duration, duration if is_own_list else silence_of(lease)
        rival.is_absent = False
        return rival

    def wrote(self, lease: Lease) -> None:
        """Handle the answer to our own write."""
        self.check(lease)
        if identity_of(lease) != self.identity:
            raise StrangeLease(f"lease {self._name}: written with our identity, and it has another")
        self._rival, self._owns, self._has_owned = None, True, True

    def check(self, lease: Lease) -> None:
        """Raises `StrangeLease` for an answer that cannot be the node's Lease."""
        if lease.metadata.name != self._name or not lease.metadata.resource_version:
            raise StrangeLease(f"lease {self._name}: the answer is no lease of this node")


async def persist(attempt: Callable[[], Awaitable[None]], clock: Clock, seconds: float) -> None:
    """Repeat `attempt` until it succeeds. The client itself reports refused credentials."""
    while True:
        try:
            return await attempt()
        except Retry as error:
            await clock.sleep(seconds if error.after is None else error.after)
        except errors.Invalid:
            raise  # the node's name is invalid
        except errors.ClientError:
            await clock.sleep(seconds)
