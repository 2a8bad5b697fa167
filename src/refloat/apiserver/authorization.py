# SPDX-License-Identifier: Apache-2.0
"""Authorization: one evaluator for requests, reviews and the in-process client.

The evaluator combines the table in `roles` with the rights of nodes, and words a
refusal as Kubernetes does. This module knows nothing of HTTP.
"""

from collections.abc import Mapping

from refloat.api import errors, fields
from refloat.apiserver import attributes, identity, node_rights, roles
from refloat.apiserver.attributes import Attributes
from refloat.apiserver.identity import ADMINS, Identity
from refloat.apiserver.node_graph import NodeGraph
from refloat.apiserver.node_rights import YES, Decision
from refloat.store.contract import Store

# Kubernetes' refusals are safe to stand in HTML.
_SANITIZED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})

_UNRESOLVED = "node authorizer does not support user rule resolution"


class AccessDenied(errors.StatusError):
    """A refusal because of the user, before the server looks at anything else."""


class Authorizer:
    """Decides on every request. Administrators may do everything."""

    def __init__(self, store: Store) -> None:
        self._graph = NodeGraph(store)

    def check_request(
        self, user: Identity, method: str, path: str, query: Mapping[str, str]
    ) -> None:
        """Raise 403 unless this user may make this HTTP request."""
        if ADMINS not in user.groups:
            self.check(user, attributes.of_request(method, path, query))

    def check(self, user: Identity, request: Attributes) -> None:
        """Raise 403 unless this user may do this."""
        decision = self.decide(user, request)
        if not decision.allowed:
            raise denied(user, request, decision.reason)

    def decide(self, user: Identity, request: Attributes) -> Decision:
        """Whether this user may do this, with the reason."""
        if ADMINS in user.groups:
            return YES
        node = identity.node_name(user)
        own = node_rights.NO
        if node is not None:
            own = node_rights.decide(node, request, self._graph)
            if own.allowed:
                return own
        grant = roles.granting(user, request)
        return own if grant is None else Decision(True, grant.reason)


def unresolved(user: Identity) -> str:
    """Why a rules review of this user is incomplete; empty if complete."""
    return "" if identity.node_name(user) is None else _UNRESOLVED


def denied(user: Identity, request: Attributes, reason: str = "") -> AccessDenied:
    """The refusal, as Kubernetes words it."""
    subject = f"User {fields.quote(user.name)} cannot {request.verb}"
    if request.is_resource:
        what, group = fields.quote(request.what), fields.quote(request.group)
        where = "at the cluster scope"
        if request.namespace:
            where = f"in the namespace {fields.quote(request.namespace)}"
        cause = f"{subject} resource {what} in API group {group} {where}"
    else:
        cause = f"{subject} path {fields.quote(request.path)}"
    cause = cause.translate(_SANITIZED)
    if reason:
        cause += f": {reason}"
    if not request.group and not request.resource:
        details = {"name": request.name} if request.name else {}
        return AccessDenied(403, "Forbidden", f"forbidden: {cause}", details=details)
    plain = errors.forbidden(request.group, request.resource, request.name, cause)
    return AccessDenied(plain.code, plain.reason, plain.message, details=plain.details)
