# SPDX-License-Identifier: Apache-2.0
"""Which process owns a node: an identity in the node's Lease that only one process can have.

The identity is the agent's instance, which stays the same over restarts on one
folder, and its incarnation, which is new for each process. Each write of the
Lease carries the identity and the resourceVersion that the writer last saw.
From both follows what a Lease proves:

1. A Lease with our own identity is ours, whatever its version and renewTime
   are. A renewal that timed out may have been applied later.
2. A Lease with another identity may be the last write of a process that is
   dead by now. All writes that a dead process left behind have the version that
   it last saw, so the API server applies at most one of them. The next one needs
   a writer that has seen the first one: a living process.
3. So a Lease that another identity renews `PROOF_RENEWALS` times while we watch
   has a living owner, and we are not it (`Taken`).
4. A Lease that another identity leaves alone for the lease's duration, while we
   watch, has no living owner. We take it. If the Lease lists pods that end by
   themselves (`api.self_fence`), they may run without their agent: then we wait
   until the last of them is dead.
5. A Lease that was deleted while we watched it proves nothing of its owner, which
   creates it again with its next renewal. We wait for as long as in 4.

Between 3 and 4 the owner is not known (`Unsure`). Errors and answers that make
no sense prove nothing. What a renewTime says of the time is never used: clocks
of two machines seldom agree.

Only the ownership is judged here; `node` sends the requests.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from refloat.api import self_fence
from refloat.api.coordination import Lease
from refloat.base.clock import Clock
from refloat.base.errors import RefloatError
from refloat.client import errors
from refloat.runtime.errors import Retry

ANNOTATION = "refloat.dev/agent"
"""On the Lease of a node: the identity of its owner."""

# The duration of a Lease that has none: a kubelet's.
DEFAULT_SECONDS = 40

# Reads of a Lease while it runs out under another identity.
READS = 8

# Of a pause between two reads so many times the usual one counts as silence at most.
MAX_PAUSES = 2.0

# Renewals under another identity that prove a living owner. One may be the last write of a dead
# process, see above; a second one cannot.
PROOF_RENEWALS = 2


class Taken(RefloatError):
    """Another living process owns this node."""


class Unsure(Retry):
    """The Lease has another identity, and it is not known whether its owner lives."""

    def __init__(self, message: str, *, seconds: float, duration: float) -> None:
        """`seconds`: for so long its owner must be silent. `duration`: of the Lease."""
        super().__init__(message, after=duration / READS)
        self.seconds = seconds


class StrangeLease(Retry):
    """An answer that is no Lease of this node: it proves nothing."""


@dataclass(frozen=True, slots=True)
class Identity:
    """One process, on one folder."""

    instance: str
    """The same over restarts on one folder."""
    incarnation: str = ""
    """New for each process. Older agents wrote none."""

    def __str__(self) -> str:
        return f"{self.instance}/{self.incarnation}"


def identity_of(lease: Lease) -> Identity:
    """Of the process that wrote a Lease last; a kubelet writes none."""
    instance, _, incarnation = (lease.metadata.annotations or {}).get(ANNOTATION, "").partition("/")
    return Identity(instance, incarnation)


def duration_of(lease: Lease) -> float:
    """For how many seconds a Lease is good."""
    return float(lease.spec.lease_duration_seconds or DEFAULT_SECONDS)


def silence_of(lease: Lease) -> float:
    """For how many seconds a dead owner's Lease stands still until its last pod is dead.

    Of pods that end by themselves only: others run for as long as their machine does.
    """
    promises = self_fence.read_listed(lease).values()
    return max([duration_of(lease), *(self_fence.dead_seconds(each) for each in promises)])


@dataclass(slots=True)
class _Rival:
    """Another identity in the Lease, and what was seen of it."""

    renewal: tuple[Identity, str]  # by which identity and with which renewTime
    seen_at: float  # when the last answer came
    duration: float  # of its Lease
    needed: float  # for how long it must be silent
    is_absent: bool = False  # whether the last answer was that there is no Lease
    silent: float = 0.0  # for how long it was seen not to renew
    renewals: int = 0  # that were seen while we watched


class Ownership:
    """What one process knows about the owner of one node; times are monotonic seconds."""

    def __init__(self, name: str, identity: Identity) -> None:
        self._name = name
        self.identity = identity
        self._rival: _Rival | None = None
        self._has_owned = False
        self._owns = False

    @property
    def is_sure(self) -> bool:
        """Whether the last that is known of the Lease is that it is ours."""
        return self._owns

    def judge(self, lease: Lease, *, sent_at: float, now: float) -> None:
        """Return if this process may renew or take that Lease; raises `Taken` or `Unsure`.

        `sent_at`: when the read was sent that answered with it.
        """
        self.check(lease)
        identity = identity_of(lease)
        if identity == self.identity:
            self._rival, self._owns, self._has_owned = None, True, True
            return
        self._owns = False
        if identity.instance == self.identity.instance and not self._has_owned:
            return  # of the process before this one on our folder, which is dead
        rival = self._watch(identity, lease, sent_at=sent_at, now=now)
        if rival.renewals >= PROOF_RENEWALS:
            raise Taken(self._name)
        text = f"node {self._name}: its lease has another identity, {identity}"
        self._check_silence(rival, text)

    def judge_absence(self, *, sent_at: float, now: float) -> None:
        """Return if this process may create the Lease, which is not there; raises `Unsure`."""
        rival = self._rival
        if rival is None:
            return  # it was ours, or no other identity was seen in it
        if rival.is_absent:
            self._count_pause(rival, sent_at)
        else:
            # Its owner may have renewed it before it was deleted. That is no renewal that we saw.
            rival.is_absent, rival.silent = True, 0.0
        rival.seen_at = now
        text = f"node {self._name}: its lease was deleted, and had another identity"
        self._check_silence(rival, text)

    def _check_silence(self, rival: _Rival, text: str) -> None:
        if rival.silent < rival.needed:
            raise Unsure(text, seconds=rival.needed, duration=rival.duration)

    def _watch(self, identity: Identity, lease: Lease, *, sent_at: float, now: float) -> _Rival:
        renewal = (identity, lease.spec.renew_time or "")
        duration, rival = duration_of(lease), self._rival
        if rival is None:
            rival = self._rival = _Rival(renewal, now, duration, duration)
        elif rival.renewal != renewal:
            rival.renewal, rival.silent = renewal, 0.0
            rival.renewals += 1
        else:
            self._count_pause(rival, sent_at)
        # A Lease that was ours until its identity was taken off lists promises of our own. To wait
        # for them would end these pods.
        is_own_list = self._has_owned and not identity.instance and not rival.renewals
        rival.duration, rival.needed = duration, duration if is_own_list else silence_of(lease)
        rival.is_absent, rival.seen_at = False, now
        return rival

    @staticmethod
    def _count_pause(rival: _Rival, sent_at: float) -> None:
        """The Lease stood still from the last answer to this request.

        Of a longer pause only a part counts: if the API server was away, the owner could not
        renew either.
        """
        pause = max(sent_at - rival.seen_at, 0.0)
        rival.silent += min(pause, MAX_PAUSES * rival.duration / READS)

    def wrote(self, lease: Lease) -> None:
        """The answer of a write of ours."""
        self.check(lease)
        if identity_of(lease) != self.identity:
            raise StrangeLease(f"lease {self._name}: written with our identity, and it has another")
        self._rival, self._owns, self._has_owned = None, True, True

    def check(self, lease: Lease) -> None:
        """Raises `StrangeLease` for what cannot be the node's Lease."""
        if lease.metadata.name != self._name or not lease.metadata.resource_version:
            raise StrangeLease(f"lease {self._name}: the answer is no lease of this node")


async def persist(attempt: Callable[[], Awaitable[None]], clock: Clock, seconds: float) -> None:
    """Try until it succeeds. The client itself reports credentials that are not accepted."""
    while True:
        try:
            return await attempt()
        except Retry as error:
            await clock.sleep(seconds if error.after is None else error.after)
        except errors.Invalid:
            raise  # a name that no node can have
        except errors.ClientError:
            await clock.sleep(seconds)
