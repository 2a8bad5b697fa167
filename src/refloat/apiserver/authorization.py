# SPDX-License-Identifier: Apache-2.0
"""Who may do what: one evaluator, for requests, reviews and the in-process client.

It combines the table in `roles` with the rights of nodes, and words a refusal
as Kubernetes does. It knows nothing of HTTP.
"""

from collections.abc import Mapping

from refloat.api import errors, fields
from refloat.apiserver import attributes, identity, node_rights, roles
from refloat.apiserver.attributes import Attributes
from refloat.apiserver.identity import ADMINS, Identity
from refloat.apiserver.node_rights import YES, Decision
from refloat.apiserver.relations import Relations
from refloat.store.contract import Store

# Kubernetes' refusals are safe to stand in HTML.
_SANITIZED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})

_UNRESOLVED = "node authorizer does not support user rule resolution"


class Refused(errors.StatusError):
    """A refusal because of who is asking, before anything else was looked at."""


class Authorizer:
    """Decides on every request but those of administrators, who may do all."""

    def __init__(self, store: Store) -> None:
        self._relations = Relations(store)

    def check_request(
        self, user: Identity, method: str, path: str, query: Mapping[str, str]
    ) -> None:
        """Raise 403 unless this user may make this HTTP request."""
        if ADMINS not in user.groups:
            self.check(user, attributes.of_request(method, path, query))

    def check(self, user: Identity, asked: Attributes) -> None:
        """Raise 403 unless this user may do this."""
        decision = self.decide(user, asked)
        if not decision.allowed:
            raise denied(user, asked, decision.reason)

    def decide(self, user: Identity, asked: Attributes) -> Decision:
        """May this user do this, and why, or why not?"""
        if ADMINS in user.groups:
            return YES
        node = identity.node_name(user)
        own = node_rights.NO
        if node is not None:
            own = node_rights.decide(node, asked, self._relations)
            if own.allowed:
                return own
        grant = roles.granting(user, asked)
        return own if grant is None else Decision(True, grant.reason)


def unresolved(user: Identity) -> str:
    """Why the rules of a user are not all of its rights; empty where they are."""
    return "" if identity.node_name(user) is None else _UNRESOLVED


def denied(user: Identity, asked: Attributes, reason: str = "") -> Refused:
    """The refusal, as Kubernetes words it."""
    cause = _cannot(user, asked).translate(_SANITIZED)
    if reason:
        cause += f": {reason}"
    if not asked.group and not asked.resource:
        details = {"name": asked.name} if asked.name else {}
        return Refused(403, "Forbidden", f"forbidden: {cause}", details=details)
    plain = errors.forbidden(asked.group, asked.resource, asked.name, cause)
    return Refused(plain.code, plain.reason, plain.message, details=plain.details)


def _cannot(user: Identity, asked: Attributes) -> str:
    who = f"User {fields.quote(user.name)} cannot {asked.verb}"
    if not asked.is_resource:
        return f"{who} path {fields.quote(asked.path)}"
    where = "at the cluster scope"
    if asked.namespace:
        where = f"in the namespace {fields.quote(asked.namespace)}"
    what, group = fields.quote(asked.what), fields.quote(asked.group)
    return f"{who} resource {what} in API group {group} {where}"
