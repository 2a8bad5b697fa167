# SPDX-License-Identifier: Apache-2.0
"""The administrator's policy for pods that are stuck on lost nodes (KEP-6757).

The settings of `zombie`, `out_of_service` and `recovery_bounds` in one value, named after the field
`failureRecoveryPolicy` of the configuration file. `config` reads the value.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, TypeAlias

from refloat.api import selectors
from refloat.api.selectors import LabelSelector
from refloat.policy.recovery import node_evidence

FIELD = "failureRecoveryPolicy"

Mode: TypeAlias = Literal["Enforce", "Report"]


@dataclass(frozen=True, slots=True)
class AnnotationRule:
    """The rule for pods with one of the opt-in annotations."""

    period: timedelta | None = None
    """From the end of the deletion grace period to Failed; unset is `default_period`."""
    namespaces: LabelSelector = selectors.EVERYTHING
    """The namespaces in which the annotations count."""
    delete_after: timedelta | None = None
    """From Failed to a deletion by force; unset keeps the object."""
    require_self_fence: bool = False
    """Only pods that their node has promised to end by itself."""


@dataclass(frozen=True, slots=True)
class TerminatePod:
    """A rule for pods by their labels, like `AnnotationRule` without a default period."""

    path: str
    """Its path in the configuration, which is its name in messages."""
    pods: LabelSelector
    period: timedelta
    delete_after: timedelta | None = None
    require_self_fence: bool = False


@dataclass(frozen=True, slots=True)
class TaintNodeOutOfService:
    """A rule for nodes: after the timeout Kubernetes' own collector ends all pods on a node."""

    path: str
    timeout: timedelta
    """Counted from when the node became unreachable."""
    nodes: LabelSelector = selectors.EVERYTHING
    all_pods: bool = False
    """Whether pods without opt-in count, too; otherwise every pod must have opted in."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The most pods that Refloat marks Failed in any window of this length."""

    max_pods: int
    window: timedelta


@dataclass(frozen=True, slots=True)
class FailureRecoveryPolicy:
    """What the administrator allows; the defaults are the KEP's."""

    mode: Mode = "Enforce"
    """`Report` decides and reports, and changes nothing."""
    annotated: AnnotationRule = field(default_factory=AnnotationRule)
    terminate: tuple[TerminatePod, ...] = ()
    """In the order of the file: the first match wins, also over the annotation."""
    taint: tuple[TaintNodeOutOfService, ...] = ()
    """In the order of the file: the first that matches a node wins."""
    budget: Budget | None = None
    """Unset is unlimited."""
    hold_above_percent: int = 55
    """While a greater part of the nodes is unreachable, nothing is forced, because then probably
    the control plane is cut off. Kubernetes' own number for a zone (behaviour C3.1)."""
    node_grace: timedelta | None = None
    """How long the Lease of a node must not change until the node counts as down; unset is
    `default_node_grace`. Force eviction uses this value, too."""
    default_node_grace: timedelta = node_evidence.GRACE_PERIOD
    """Kubernetes' own; on an embedded cluster the grace period of its node controller."""
    default_period: timedelta = timedelta(minutes=1)
    """The KEP's minute; shorter with `refloat up --fast`."""

    @property
    def node_grace_period(self) -> timedelta:
        return self.default_node_grace if self.node_grace is None else self.node_grace

    @property
    def has_rules(self) -> bool:
        return bool(self.terminate or self.taint)

    @property
    def deletes(self) -> bool:
        """Whether Refloat deletes pods that are over."""
        after = (self.annotated.delete_after, *(rule.delete_after for rule in self.terminate))
        return any(each is not None for each in after)
