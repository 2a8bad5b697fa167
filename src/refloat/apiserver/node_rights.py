# SPDX-License-Identifier: Apache-2.0
"""The rights of a node's agent, as far as the address decides.

An agent has fewer rights than a kubelet in Kubernetes: no evictions, no services,
no tokens, no volumes beyond their claims. The messages of refusals are those of
Kubernetes. `node_restriction` has the rules that need the object, such as the name
of a new node.
"""

from collections.abc import Callable
from dataclasses import dataclass

from refloat.apiserver.attributes import Attributes
from refloat.apiserver.node_graph import NodeGraph

_CLAIMS = "persistentvolumeclaims"
LEASES = "kube-node-lease"  # the namespace of the nodes' leases

_READS = ("get", "list", "watch")
_WRITES = ("create", "update", "patch")
_CHANGES = ("update", "patch")


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether the request is allowed, and a reason if the message has one."""

    allowed: bool
    reason: str = ""


YES = Decision(True)
NO = Decision(False)
NAMELESS = Decision(False, "No Object name found")


def decide(node: str, request: Attributes, graph: NodeGraph) -> Decision:
    """Whether this node may do this."""
    if not node:
        return Decision(False, 'unknown node for user "system:node:"')
    right = _RIGHTS.get((request.group, request.resource)) if request.is_resource else None
    return NO if right is None else right(_NodeRights(node, graph), request)


@dataclass(frozen=True, slots=True)
class _NodeRights:
    """The requesting node; each method decides on one kind."""

    name: str
    graph: NodeGraph

    def unrelated(self) -> Decision:
        return Decision(False, f"no relationship found between node '{self.name}' and this object")

    def own_node(self, request: Attributes) -> Decision:
        if request.subresource:
            return Decision(request.subresource == "status" and request.verb in _CHANGES)
        if request.verb not in _READS:
            return Decision(request.verb in _WRITES)
        if request.name == self.name:
            return YES
        which = f"'{request.name}'" if request.name else "all nodes"
        return Decision(False, f"node '{self.name}' cannot read {which}, only its own Node object")

    def own_lease(self, request: Attributes) -> Decision:
        if request.verb not in ("get", "delete", *_WRITES):
            return Decision(False, "can only get, create, update, patch, or delete a node lease")
        if request.namespace != LEASES:
            return Decision(False, f'can only access leases in the "{LEASES}" system namespace')
        if request.verb != "create" and request.name != self.name:
            reason = "can only access node lease with the same name as the requesting node"
            return Decision(False, reason)
        return Decision(request.verb != "delete" and not request.subresource)

    def own_pods(self, request: Attributes) -> Decision:
        if request.subresource:
            return Decision(request.subresource == "status" and request.verb in _CHANGES)
        if request.verb not in _READS:
            return Decision(request.verb in ("create", "delete"))
        if request.verb != "get":
            terms = ((t.label, t.value, t.negated) for t in request.fields.terms)
            if ("spec.nodeName", self.name, False) in terms:
                return YES
            if not request.name:
                reason = "can only list/watch pods with spec.nodeName field selector"
                return Decision(False, reason)
        if not request.name:
            return NAMELESS
        if self.graph.is_bound(self.name, request.namespace, request.name):
            return YES
        return self.unrelated()

    def named_by_pods(self, request: Attributes) -> Decision:
        """ConfigMaps and Secrets, one at a time."""
        if request.verb not in _READS:
            return Decision(False, "can only read resources of this type")
        if request.subresource:
            return Decision(False, "cannot read subresource")
        if not request.namespace:
            return Decision(False, "can only read namespaced object of this type")
        return self._if_named(request)

    def claims(self, request: Attributes) -> Decision:
        if request.subresource == "status":
            if request.verb in _CHANGES:
                return self.unrelated()
            return Decision(False, "can only get/update/patch this type")
        return _single(request) or self._if_named(request)

    def _if_named(self, request: Attributes) -> Decision:
        if not request.name:
            return NAMELESS
        if self.graph.is_named(self.name, request.resource, request.namespace, request.name):
            return YES
        return self.unrelated()

    def volumes(self, request: Attributes) -> Decision:
        """Volumes that are bound to the claims of its pods."""
        if (refusal := _single(request)) is not None:
            return refusal
        if not request.name:
            return NAMELESS
        claim = self.graph.claim_of(request.name)
        if claim is not None and self.graph.is_named(self.name, _CLAIMS, *claim):
            return YES
        return self.unrelated()

    def no_attachments(self, request: Attributes) -> Decision:
        """No pod names an attachment; the agent reads them from the Node's status."""
        return _single(request) or self._if_named(request)

    def no_accounts(self, request: Attributes) -> Decision:
        """Pods do not name service accounts for this either."""
        if request.verb == "get" and not request.subresource:
            return self.named_by_pods(request)
        if request.verb != "create" or not request.name:
            return Decision(False, "can only create tokens for individual service accounts")
        if request.subresource != "token":
            return Decision(False, "can only create token subresource of serviceaccount")
        return self.unrelated()

    def events(self, request: Attributes) -> Decision:
        """Create events, and count repeated ones."""
        return Decision(request.verb in _WRITES and not request.subresource)


def _single(request: Attributes) -> Decision | None:
    if request.verb != "get":
        return Decision(False, "can only get individual resources of this type")
    return Decision(False, "cannot get subresource") if request.subresource else None


_RIGHTS: dict[tuple[str, str], Callable[[_NodeRights, Attributes], Decision]] = {
    ("", "configmaps"): _NodeRights.named_by_pods,
    ("", "events"): _NodeRights.events,
    ("", "nodes"): _NodeRights.own_node,
    ("", "persistentvolumeclaims"): _NodeRights.claims,
    ("", "persistentvolumes"): _NodeRights.volumes,
    ("", "pods"): _NodeRights.own_pods,
    ("", "secrets"): _NodeRights.named_by_pods,
    ("", "serviceaccounts"): _NodeRights.no_accounts,
    ("coordination.k8s.io", "leases"): _NodeRights.own_lease,
    ("events.k8s.io", "events"): _NodeRights.events,
    ("storage.k8s.io", "volumeattachments"): _NodeRights.no_attachments,
}
