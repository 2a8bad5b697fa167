# SPDX-License-Identifier: Apache-2.0
"""How many pods of a disruption budget are well, and how many of them may go.

The eviction subresource spends what is allowed here; who spends it is noted
in the budget's status until the pod is seen to be on its way (behaviour C5,
C6). Pods whose owner cannot say how many of them there should be make a
budget that needs that number fail, as in Kubernetes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from refloat.api import kinds, structs, times
from refloat.api.core import Pod
from refloat.api.policy import PodDisruptionBudget
from refloat.api.structs import LabelSelector, OwnerReference
from refloat.policy import disruption

ALLOWED = "DisruptionAllowed"
SUFFICIENT, INSUFFICIENT, SYNC_FAILED = "SufficientPods", "InsufficientPods", "SyncFailed"


@dataclass(frozen=True, slots=True)
class Settings:
    """Kubernetes' own values."""

    patience: timedelta = timedelta(minutes=2)
    """How long a pod whose eviction was granted may take to be on its way, and how long a pod
    may be marked as about to be disrupted without being deleted."""


KUBERNETES = Settings()


class Uncountable(Exception):
    """The number of pods that should be there is not known."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What a budget's status should say."""

    healthy: int
    desired: int
    expected: int
    disrupted: Mapping[str, str] = field(default_factory=dict)
    """Pods on whose deletion is still waited, with the time when it was granted."""
    not_deleted: tuple[Pod, ...] = ()
    """Pods that were granted and stayed."""
    unmanaged: bool = False
    """Some pods have no owner, and the budget would need one."""
    recheck_at: datetime | None = None

    @property
    def allowed(self) -> int:
        spare = self.healthy - self.desired
        return spare if self.expected > 0 and spare > 0 else 0


def tally(
    budget: PodDisruptionBudget,
    pods: Sequence[Pod],
    *,
    now: datetime,
    settings: Settings = KUBERNETES,
) -> Tally:
    """Count the pods of a budget; raises `Uncountable`."""
    expected, desired, unmanaged = _expectation(budget, pods)
    waiting, stayed, since = _disrupted(budget, pods, now - settings.patience)
    healthy = sum(_is_healthy(pod) and pod.metadata.name not in waiting for pod in pods)
    recheck = None if since is None else since + settings.patience
    return Tally(healthy, desired, expected, waiting, tuple(stayed), unmanaged, recheck)


def _is_healthy(pod: Pod) -> bool:
    return not pod.is_terminating and structs.is_true(pod.status.conditions, "Ready")


def _expectation(budget: PodDisruptionBudget, pods: Sequence[Pod]) -> tuple[int, int, bool]:
    """How many pods there should be, how many must be well, and whether some have no owner."""
    spec = budget.spec
    if spec.max_unavailable is not None:
        expected, unmanaged = _scale(pods)
        return expected, max(0, expected - _share(spec.max_unavailable, expected)), unmanaged
    if spec.min_available is None:
        return 0, 0, False
    if isinstance(spec.min_available, int):
        return len(pods), spec.min_available, False
    expected, unmanaged = _scale(pods)
    return expected, _share(spec.min_available, expected), unmanaged


def _share(value: int | str, of: int) -> int:
    """A number, or a percentage of another, rounded up."""
    if isinstance(value, int):
        return value
    return -(-int(value.removesuffix("%")) * of // 100)


def _scale(pods: Sequence[Pod]) -> tuple[int, bool]:
    """The pods that all owners together want: none here can say, so only pods without one pass."""
    owners = [pod.metadata.controller for pod in pods]
    for owner in owners:
        if owner is not None:
            raise Uncountable(_why(owner))
    return 0, bool(owners)


def _why(owner: OwnerReference) -> str:
    resource = kinds.BY_KIND.get((owner.api_version, owner.kind))
    if resource is not None:
        group = resource.group
        name = f"{resource.plural}.{group}" if group else resource.plural
        return f"{name} does not implement the scale subresource"
    return f'no matches for kind "{owner.kind}" in version "{owner.api_version}"'


def _disrupted(
    budget: PodDisruptionBudget, pods: Sequence[Pod], oldest: datetime
) -> tuple[dict[str, str], list[Pod], datetime | None]:
    """Those waited for, those that stayed, and since when the oldest is waited for."""
    noted = budget.status.disrupted_pods or {}
    waiting: dict[str, str] = {}
    stayed: list[Pod] = []
    grants: list[datetime] = []
    for pod in pods:
        since = noted.get(pod.metadata.name)
        if since is None or pod.is_terminating:
            continue
        granted = times.parse(since)
        if granted <= oldest:
            stayed.append(pod)
        else:
            waiting[pod.metadata.name] = since
            grants.append(granted)
    return waiting, stayed, min(grants, default=None)


def marked_since(pod: Pod) -> datetime | None:
    """Since when it is marked for a disruption that has not come; none if it is not (C5.1)."""
    if pod.is_terminating or pod.is_terminal:
        return None
    held = structs.find(pod.status.conditions, disruption.TARGET)
    if held is None or held.status != "True" or held.reason == disruption.BY_KUBELET:
        return None
    return times.parse(held.last_transition_time or _LONG_AGO)


_LONG_AGO = "1970-01-01T00:00:00Z"


def selector_text(selector: LabelSelector | None) -> str:
    """A selector as Go prints it, which is how it stands in an event."""
    if selector is None:
        return "nil"
    labels = "".join(
        f"{key}: {value}," for key, value in sorted((selector.match_labels or {}).items())
    )
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{each.key},Operator:{each.operator},"
        f"Values:[{' '.join(each.values or ())}],}},"
        for each in selector.match_expressions or ()
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
