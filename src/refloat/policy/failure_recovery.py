# SPDX-License-Identifier: Apache-2.0
"""What an administrator allows for pods that are stuck on lost nodes (KEP-6757).

The settings of `zombie`, `out_of_service` and `recovery_bounds` in one value,
named after the field `failureRecoveryPolicy` of the configuration file.
`config` reads it; nothing here decides.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, TypeAlias

from refloat.api import selectors
from refloat.api.selectors import LabelSelector
from refloat.policy import node_evidence

FIELD = "failureRecoveryPolicy"

Mode: TypeAlias = Literal["Enforce", "Report"]


@dataclass(frozen=True, slots=True)
class Annotated:
    """Pods that carry one of the opt-in annotations."""

    period: timedelta | None = None
    """From the end of the deletion grace period to Failed; unset is `default_period`."""
    namespaces: LabelSelector = selectors.EVERYTHING
    """Where the annotations are heeded."""
    delete_after: timedelta | None = None
    """From Failed to a deletion by force; unset leaves the object there."""
    require_self_fence: bool = False
    """Only pods whose node has promised to end them by itself."""


@dataclass(frozen=True, slots=True)
class TerminatePod:
    """A rule for pods by their labels. The same fields as `Annotated`, but no default period."""

    path: str
    """Where it stands in the configuration: what it is called in messages."""
    pods: LabelSelector
    period: timedelta
    delete_after: timedelta | None = None
    require_self_fence: bool = False


@dataclass(frozen=True, slots=True)
class TaintNodeOutOfService:
    """A rule for nodes: after the timeout Kubernetes' own collector ends all pods on one."""

    path: str
    timeout: timedelta
    """Counted from when the node became unreachable."""
    nodes: LabelSelector = selectors.EVERYTHING
    all_pods: bool = False
    """Whether or not the pods on it opted in; otherwise every one must have."""


@dataclass(frozen=True, slots=True)
class Budget:
    """At most so many pods are made to fail in any window of this length."""

    max_pods: int
    window: timedelta


@dataclass(frozen=True, slots=True)
class FailureRecoveryPolicy:
    """What a cluster's administrator allows; without a word, what the KEP has."""

    mode: Mode = "Enforce"
    """`Report` decides and tells, and touches nothing."""
    annotated: Annotated = field(default_factory=Annotated)
    terminate: tuple[TerminatePod, ...] = ()
    """In the order of the file: the first that matches a pod wins, and before the annotation."""
    taint: tuple[TaintNodeOutOfService, ...] = ()
    """In the order of the file: the first that matches a node wins."""
    budget: Budget | None = None
    """Unset is unlimited."""
    hold_above_percent: int = 55
    """While a greater part of the nodes is unreachable, nothing is forced: then it is rather the
    control plane that is cut off. Kubernetes' own number for a zone (behaviour C3.1)."""
    node_grace: timedelta | None = None
    """For how long the Lease of a node must not change until the node counts as down; unset is
    `default_node_grace`. Force eviction goes by it too."""
    default_node_grace: timedelta = node_evidence.GRACE_PERIOD
    """Kubernetes' own; on an embedded cluster the grace period of its node controller."""
    default_period: timedelta = timedelta(minutes=1)
    """The KEP's minute; shorter where all waits are (`refloat up --fast`)."""

    @property
    def node_grace_period(self) -> timedelta:
        return self.default_node_grace if self.node_grace is None else self.node_grace

    @property
    def has_rules(self) -> bool:
        return bool(self.terminate or self.taint)

    @property
    def deletes(self) -> bool:
        """Whether anything is done about pods that are over."""
        after = (self.annotated.delete_after, *(rule.delete_after for rule in self.terminate))
        return any(each is not None for each in after)
