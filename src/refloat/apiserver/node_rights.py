# SPDX-License-Identifier: Apache-2.0
"""What the agent of a node may do, which depends on the object.

It is less than what Kubernetes lets a kubelet do: no evictions, no services,
no tokens, no volumes beyond their claims. Where both say no they say it in the
same words. Here stands what can be said from the address alone; what depends
on the object that is written, such as the name of a new node or that a new pod
is a mirror pod, is for `node_restriction`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from refloat.api import selectors
from refloat.apiserver.attributes import Attributes
from refloat.apiserver.relations import Relations

_CLAIMS = "persistentvolumeclaims"
LEASES = "kube-node-lease"  # the namespace of the nodes' leases

_READS = ("get", "list", "watch")
_WRITES = ("create", "update", "patch")
_CHANGES = ("update", "patch")


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether something is allowed, and the reason where there is one to tell."""

    allowed: bool
    reason: str = ""


YES = Decision(True)
NO = Decision(False)
NAMELESS = Decision(False, "No Object name found")


def decide(node: str, asked: Attributes, relations: Relations) -> Decision:
    """May this node do this?"""
    if not node:
        return Decision(False, 'unknown node for user "system:node:"')
    right = _RIGHTS.get((asked.group, asked.resource)) if asked.is_resource else None
    return NO if right is None else right(_Node(node, relations), asked)


@dataclass(frozen=True, slots=True)
class _Node:
    """The one who asks; each method is its right on one kind, or the want of it."""

    name: str
    relations: Relations

    def unrelated(self) -> Decision:
        return Decision(False, f"no relationship found between node '{self.name}' and this object")

    def own_node(self, asked: Attributes) -> Decision:
        if asked.subresource:
            return Decision(asked.subresource == "status" and asked.verb in _CHANGES)
        if asked.verb not in _READS:
            return Decision(asked.verb in _WRITES)
        if asked.name == self.name:
            return YES
        which = f"'{asked.name}'" if asked.name else "all nodes"
        return Decision(False, f"node '{self.name}' cannot read {which}, only its own Node object")

    def own_lease(self, asked: Attributes) -> Decision:
        if asked.verb not in ("get", "delete", *_WRITES):
            return Decision(False, "can only get, create, update, patch, or delete a node lease")
        if asked.namespace != LEASES:
            return Decision(False, f'can only access leases in the "{LEASES}" system namespace')
        if asked.verb != "create" and asked.name != self.name:
            reason = "can only access node lease with the same name as the requesting node"
            return Decision(False, reason)
        return Decision(asked.verb != "delete" and not asked.subresource)

    def own_pods(self, asked: Attributes) -> Decision:
        if asked.subresource:
            return Decision(asked.subresource == "status" and asked.verb in _CHANGES)
        if asked.verb not in _READS:
            return Decision(asked.verb in ("create", "delete"))
        if asked.verb != "get":
            if any(_pins(term, self.name) for term in asked.fields.terms):
                return YES
            if not asked.name:
                reason = "can only list/watch pods with spec.nodeName field selector"
                return Decision(False, reason)
        if not asked.name:
            return NAMELESS
        if self.relations.is_bound(self.name, asked.namespace, asked.name):
            return YES
        return self.unrelated()

    def named_by_pods(self, asked: Attributes) -> Decision:
        """ConfigMaps and Secrets, one at a time."""
        if asked.verb not in _READS:
            return Decision(False, "can only read resources of this type")
        if asked.subresource:
            return Decision(False, "cannot read subresource")
        if not asked.namespace:
            return Decision(False, "can only read namespaced object of this type")
        return self._if_named(asked)

    def claims(self, asked: Attributes) -> Decision:
        if asked.subresource == "status":
            if asked.verb in _CHANGES:
                return self.unrelated()
            return Decision(False, "can only get/update/patch this type")
        return _single(asked) or self._if_named(asked)

    def _if_named(self, asked: Attributes) -> Decision:
        if not asked.name:
            return NAMELESS
        if self.relations.is_named(self.name, asked.resource, asked.namespace, asked.name):
            return YES
        return self.unrelated()

    def volumes(self, asked: Attributes) -> Decision:
        """Those that are bound to claims that its pods name."""
        if (refused := _single(asked)) is not None:
            return refused
        if not asked.name:
            return NAMELESS
        claim = self.relations.claim_of(asked.name)
        if claim is not None and self.relations.is_named(self.name, _CLAIMS, *claim):
            return YES
        return self.unrelated()

    def no_attachments(self, asked: Attributes) -> Decision:
        """What is attached to a node stands on the node: no pod names an attachment."""
        return _single(asked) or self._if_named(asked)

    def no_accounts(self, asked: Attributes) -> Decision:
        """The accounts that pods name do not count as named either."""
        if asked.verb == "get" and not asked.subresource:
            return self.named_by_pods(asked)
        if asked.verb != "create" or not asked.name:
            return Decision(False, "can only create tokens for individual service accounts")
        if asked.subresource != "token":
            return Decision(False, "can only create token subresource of serviceaccount")
        return self.unrelated()

    def events(self, asked: Attributes) -> Decision:
        """Also to count one that comes again."""
        return Decision(asked.verb in _WRITES and not asked.subresource)


def _single(asked: Attributes) -> Decision | None:
    if asked.verb != "get":
        return Decision(False, "can only get individual resources of this type")
    return Decision(False, "cannot get subresource") if asked.subresource else None


def _pins(term: selectors.FieldTerm, node: str) -> bool:
    return term.label == "spec.nodeName" and term.value == node and not term.negated


_RIGHTS: dict[tuple[str, str], Callable[[_Node, Attributes], Decision]] = {
    ("", "configmaps"): _Node.named_by_pods,
    ("", "events"): _Node.events,
    ("", "nodes"): _Node.own_node,
    ("", "persistentvolumeclaims"): _Node.claims,
    ("", "persistentvolumes"): _Node.volumes,
    ("", "pods"): _Node.own_pods,
    ("", "secrets"): _Node.named_by_pods,
    ("", "serviceaccounts"): _Node.no_accounts,
    ("coordination.k8s.io", "leases"): _Node.own_lease,
    ("events.k8s.io", "events"): _Node.events,
    ("storage.k8s.io", "volumeattachments"): _Node.no_attachments,
}
