# SPDX-License-Identifier: Apache-2.0
"""How many pods of a disruption budget are healthy, and how many may be disrupted.

The eviction subresource uses what is allowed here, and notes each eviction in the budget's status
until the pod terminates (behaviour C5, C6). If an owner cannot report its scale, a budget that
needs the scale fails, as in Kubernetes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from refloat.api import kinds, structs, times
from refloat.api.core import Pod
from refloat.api.policy import PodDisruptionBudget
from refloat.api.structs import LabelSelector, OwnerReference
from refloat.policy.scheduling import disruption_target

ALLOWED = "DisruptionAllowed"
SUFFICIENT, INSUFFICIENT, SYNC_FAILED = "SufficientPods", "InsufficientPods", "SyncFailed"


@dataclass(frozen=True, slots=True)
class DisruptionBudgetSettings:
    """Kubernetes' own values."""

    patience: timedelta = timedelta(minutes=2)
    """How long a pod may take to terminate after its eviction, and how long a pod may be marked as
    disrupted without a deletion."""


KUBERNETES = DisruptionBudgetSettings()


class Uncountable(Exception):
    """The expected number of pods is unknown."""


@dataclass(frozen=True, slots=True)
class BudgetTally:
    """The numbers for a budget's status."""

    healthy: int
    desired: int
    expected: int
    disrupted: Mapping[str, str] = field(default_factory=dict)
    """Pods whose deletion is still awaited, with the time of the eviction."""
    not_deleted: tuple[Pod, ...] = ()
    """Pods that were evicted and stayed."""
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
    settings: DisruptionBudgetSettings = KUBERNETES,
) -> BudgetTally:
    """Count the pods of a budget; raises `Uncountable`."""
    spec, expected, desired, unmanaged = budget.spec, 0, 0, False
    if spec.max_unavailable is not None or isinstance(spec.min_available, str):
        # Both need the scale of all owners. No kind here has a scale, so only pods without owner
        # pass, and none of them are expected.
        for owner in filter(None, (pod.metadata.controller for pod in pods)):
            raise Uncountable(_why(owner))
        unmanaged = bool(pods)
    elif spec.min_available is not None:
        expected, desired = len(pods), spec.min_available
    disruptions, oldest = budget.status.disrupted_pods or {}, now - settings.patience
    waiting: dict[str, str] = {}
    stayed: list[Pod] = []
    for pod in pods:
        since = disruptions.get(pod.metadata.name)
        if since is None or pod.is_terminating:
            continue
        if times.parse(since) <= oldest:
            stayed.append(pod)
        else:
            waiting[pod.metadata.name] = since
    healthy = sum(
        pod.metadata.name not in waiting and structs.is_true(pod.status.conditions, "Ready")
        for pod in pods
        if not pod.is_terminating
    )
    first = min(map(times.parse, waiting.values()), default=None)
    recheck = None if first is None else first + settings.patience
    return BudgetTally(healthy, desired, expected, waiting, tuple(stayed), unmanaged, recheck)


def _why(owner: OwnerReference) -> str:
    resource = kinds.BY_KIND.get((owner.api_version, owner.kind))
    if resource is not None:
        group = resource.group
        name = f"{resource.plural}.{group}" if group else resource.plural
        return f"{name} does not implement the scale subresource"
    return f'no matches for kind "{owner.kind}" in version "{owner.api_version}"'


def marked_since(pod: Pod) -> datetime | None:
    """Since when the pod is marked as disrupted without a deletion; None if not (C5.1)."""
    if pod.is_terminating or pod.is_terminal:
        return None
    condition = structs.find(pod.status.conditions, disruption_target.TARGET)
    if (
        condition is None
        or condition.status != "True"
        or condition.reason == disruption_target.BY_KUBELET
    ):
        return None
    return times.parse(condition.last_transition_time or _LONG_AGO)


_LONG_AGO = "1970-01-01T00:00:00Z"


def selector_text(selector: LabelSelector | None) -> str:
    """A selector as Go prints it, for an event."""
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
