# SPDX-License-Identifier: Apache-2.0
"""What the parts of failure recovery share: caches, unreachable nodes, leases."""

from collections.abc import Iterator, Mapping, Sequence

from refloat.api.coordination import NODE_NAMESPACE, Lease
from refloat.api.core import Namespace, Node, Pod
from refloat.api.self_fence import Promise
from refloat.base.clock import Clock
from refloat.controllers.failure_recovery.settings import FailureRecoverySettings
from refloat.policy.recovery import recovery_bounds, zombie
from refloat.policy.recovery.node_evidence import LeaseSilence
from refloat.runtime import index
from refloat.runtime.cache import Cache
from refloat.runtime.lease_observer import LeaseObserver


class PodCaches:
    """The pods of one cache or, where a process acts in some namespaces only, of several."""

    def __init__(self, caches: Sequence[Cache[Pod]]) -> None:
        self._caches = caches

    def __iter__(self) -> Iterator[Pod]:
        return (pod for cache in self._caches for pod in cache)

    def get(self, key: str) -> Pod | None:
        pods = (cache.get(key) for cache in self._caches)
        return next((pod for pod in pods if pod is not None), None)

    def on(self, node: str) -> list[Pod]:
        return [pod for cache in self._caches for pod in cache.by(index.NODE, node)]


class RecoveryState:
    """Handlers of the controller update the state, the reconcilers read the state."""

    def __init__(
        self,
        pods: PodCaches,
        nodes: Cache[Node],
        namespaces: Cache[Namespace],
        clock: Clock,
        *,
        node_leases: Cache[Lease] | None = None,
        leases: LeaseObserver | None = None,
    ) -> None:
        """Without `node_leases` no pod counts as armed."""
        self.pods = pods
        self._node_leases = node_leases
        self.nodes = nodes
        self._namespaces = namespaces
        self._clock = clock
        self.settings = FailureRecoverySettings()
        self.leads = True  # whether this process is the leader
        self.leases = leases or LeaseObserver(clock)
        self.lost: dict[str, None] = {}  # names of unreachable nodes
        self.terminating: dict[str, None] = {}  # keys of pods that are being deleted

    def labels_of(self, pod: Pod) -> Mapping[str, str]:
        """The labels of the pod's namespace."""
        namespace = self._namespaces.get(pod.metadata.namespace)
        return {} if namespace is None else namespace.metadata.labels or {}

    def silence(self, node: str) -> LeaseSilence:
        return self.leases.silence(node)

    def decide(self, pod: Pod, node: Node | None) -> zombie.Decision:
        return zombie.decide(
            pod,
            node,
            self.settings.policy,
            namespace=self.labels_of(pod),
            silence=self.silence(pod.spec.node_name),
            now=self._clock.now(),
            promise=self.promise(pod),
        )

    def promise(self, pod: Pod) -> Promise | None:
        """The self-fence promise for a pod in the Lease of its node."""
        if self._node_leases is None:
            return None
        lease = self._node_leases.get(f"{NODE_NAMESPACE}/{pod.spec.node_name}")
        return zombie.promise_of(pod, lease)

    @property
    def is_on(self) -> bool:
        """Whether the gate is on and this process leads."""
        return self.settings.enabled and self.leads

    @property
    def may_force(self) -> bool:
        """Ask again after each wait: gate, mode and nodes may have changed."""
        return self.is_on and self.settings.policy.mode != "Report" and not self.is_held

    @property
    def is_held(self) -> bool:
        """Whether too many nodes are unreachable to force anything."""
        above = self.settings.policy.hold_above_percent
        return recovery_bounds.holds(len(self.lost), len(self.nodes), above)

    @property
    def why_held(self) -> str:
        above = self.settings.policy.hold_above_percent
        return (
            f"{len(self.lost)} of {len(self.nodes)} nodes are unreachable,"
            f" more than holdAboveUnreachableNodes {above}%"
        )

    def stuck_on_lost_nodes(self) -> int:
        """Pods whose grace period is over and that still exist on unreachable nodes."""
        now = self._clock.now()
        pods = (self.pods.get(key) for key in self.terminating)
        return sum(
            pod is not None
            and pod.spec.node_name in self.lost
            and not pod.is_terminal
            and zombie.deleted_at(pod) < now
            for pod in pods
        )

    def stuck_on_reachable_nodes(self) -> int:
        """Overdue pods on reachable nodes: Refloat only counts them."""
        now, period = self._clock.now(), self.settings.policy.default_period
        pods = (self.pods.get(key) for key in self.terminating)
        return sum(
            pod is not None
            and pod.spec.node_name in self.nodes
            and pod.spec.node_name not in self.lost
            and zombie.deleted_at(pod) + period < now
            for pod in pods
        )
