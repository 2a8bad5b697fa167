# SPDX-License-Identifier: Apache-2.0
"""The rights of all users but nodes, as one table.

Rules have the meaning of Kubernetes' RBAC. Roles that exist there have the same names
and rules here, reduced to Refloat's kinds. The table is fixed: there are no Role
objects. The rights of nodes depend on the object, and are in `node_rights`.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from refloat.api import kinds
from refloat.apiserver import identity
from refloat.apiserver.attributes import Attributes
from refloat.apiserver.identity import Identity

ALL = ("*",)

# Users with cached grants; a request by one more costs microseconds.
_REMEMBERED = 1024


@dataclass(frozen=True, slots=True)
class Rule:
    """Verbs on resources, or on paths."""

    verbs: tuple[str, ...]
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()  # none: every object
    paths: tuple[str, ...] = ()

    def allows(self, request: Attributes) -> bool:
        if not _has(self.verbs, request.verb):
            return False
        if not request.is_resource:
            return any(
                each == request.path
                or (each.endswith("*") and request.path.startswith(each.rstrip("*")))
                for each in self.paths
            )
        return (
            _has(self.groups, request.group)
            and (
                _has(self.resources, request.what)
                or (bool(request.subresource) and f"*/{request.subresource}" in self.resources)
            )
            and (not self.names or request.name in self.names)
        )


def _has(names: tuple[str, ...], name: str) -> bool:
    return name in names or "*" in names


@dataclass(frozen=True, slots=True)
class Grant:
    """A role, and the one user or group that holds it."""

    role: str
    kind: Literal["User", "Group", "ServiceAccount"]
    holder: str  # the name of the user or group
    rules: tuple[Rule, ...]

    @property
    def reason(self) -> str:
        """The reason of an allowed request, as in Kubernetes."""
        holder = self.holder
        if self.kind == "ServiceAccount":
            account = identity.account_of(self.holder)
            assert account is not None
            holder = "/".join(reversed(account))
        return (
            f'RBAC: allowed by ClusterRoleBinding "{self.role}" of ClusterRole "{self.role}" '
            f'to {self.kind} "{holder}"'
        )


_READ = ("get", "list", "watch")
_HEALTH = ("/healthz", "/livez", "/readyz", "/version", "/version/")
_DISCOVERY = ("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", *_HEALTH)

_PUBLIC = (Rule(("get",), paths=_HEALTH),)

_BASIC = (
    Rule(
        ("create",),
        ("authorization.k8s.io",),
        ("selfsubjectaccessreviews", "selfsubjectrulesreviews"),
    ),
    Rule(("create",), ("authentication.k8s.io",), ("selfsubjectreviews",)),
)


def _readable() -> tuple[Rule, ...]:
    """Read access to everything but secrets, and to the subresources log and status."""
    by_group: dict[str, list[str]] = defaultdict(list)
    for resource in kinds.RESOURCES:
        if resource.plural == "secrets":
            continue
        by_group[resource.group].append(resource.plural)
        by_group[resource.group] += [
            f"{resource.plural}/{name}"
            for name in ("log", "status")
            if resource.subresource(name) is not None
        ]
    rules = [Rule(_READ, (group,), tuple(names)) for group, names in by_group.items()]
    return (*rules, Rule(("get",), paths=ALL))


_EVENTS = Rule(("create", "patch", "update"), ("", "events.k8s.io"), ("events",))
_WRITE_STATUS = ("patch", "update")

# Controllers by their names in Kubernetes, or by similar names.
CONTROLLERS: dict[str, tuple[Rule, ...]] = {
    "attachdetach-controller": (
        Rule(_READ, ("",), ("persistentvolumeclaims", "persistentvolumes")),
        Rule(_READ, ("",), ("nodes", "pods")),
        Rule(_WRITE_STATUS, ("",), ("nodes/status",)),
        Rule(("create", "delete", *_READ), ("storage.k8s.io",), ("volumeattachments",)),
        Rule(_WRITE_STATUS, ("storage.k8s.io",), ("volumeattachments/status",)),
        _EVENTS,
    ),
    "disruption-controller": (
        Rule(_READ, ("policy",), ("poddisruptionbudgets",)),
        Rule(_READ, ("",), ("pods",)),
        Rule(_READ, ("batch",), ("jobs",)),
        Rule(_WRITE_STATUS, ("policy",), ("poddisruptionbudgets/status",)),
        Rule(_WRITE_STATUS, ("",), ("pods/status",)),
        _EVENTS,
    ),
    "force-eviction-controller": (
        Rule((*_READ, "patch"), ("",), ("nodes",)),
        Rule((*_READ, "delete", "patch"), ("",), ("pods",)),
        Rule(_WRITE_STATUS, ("",), ("nodes/status", "pods/status")),
        Rule(("get",), ("coordination.k8s.io",), ("leases",)),
        Rule((*_READ, "delete"), ("storage.k8s.io",), ("volumeattachments",)),
        Rule(_READ, ("",), ("persistentvolumeclaims", "persistentvolumes")),
        _EVENTS,
    ),
    "generic-garbage-collector": (Rule(("delete", *_READ, "patch", "update"), ALL, ALL), _EVENTS),
    "job-controller": (
        Rule((*_READ, "patch", "update"), ("batch",), ("jobs",)),
        Rule(_WRITE_STATUS, ("batch",), ("jobs/status",)),
        Rule(("create", "delete", *_READ, "patch"), ("",), ("pods",)),
        Rule(("get",), ("",), ("pods/log",)),
        _EVENTS,
    ),
    "namespace-controller": (
        Rule(("delete", *_READ), ("",), ("namespaces",)),
        Rule(_WRITE_STATUS, ("",), ("namespaces/finalize", "namespaces/status")),
        Rule(("delete", "deletecollection", *_READ), ALL, ALL),
    ),
    "node-controller": (
        Rule(("delete", *_READ, "patch", "update"), ("",), ("nodes",)),
        Rule(_WRITE_STATUS, ("",), ("nodes/status",)),
        Rule(_WRITE_STATUS, ("",), ("pods/status",)),
        Rule(("delete", *_READ), ("",), ("pods",)),
        Rule(_READ, ("coordination.k8s.io",), ("leases",)),
        _EVENTS,
    ),
    "persistent-volume-binder": (
        Rule((*_READ, "patch", "update"), ("",), ("persistentvolumeclaims", "persistentvolumes")),
        Rule(_WRITE_STATUS, ("",), ("persistentvolumeclaims/status", "persistentvolumes/status")),
        _EVENTS,
    ),
    "pod-garbage-collector": (
        Rule(("delete", *_READ), ("",), ("pods",)),
        Rule(_READ, ("",), ("nodes",)),
        Rule(("patch",), ("",), ("pods/status",)),
    ),
    "taint-eviction-controller": (
        Rule(_READ, ("",), ("nodes",)),
        Rule(("delete", *_READ), ("",), ("pods",)),
        Rule(_WRITE_STATUS, ("",), ("pods/status",)),
        _EVENTS,
    ),
    "ttl-after-finished-controller": (Rule(("delete", *_READ), ("batch",), ("jobs",)), _EVENTS),
    "zombie-controller": (
        Rule(_READ, ("",), ("namespaces", "nodes")),
        Rule(("patch",), ("",), ("nodes",)),
        Rule((*_READ, "delete"), ("",), ("pods",)),
        Rule(("patch",), ("",), ("pods/status",)),
        Rule(_READ, ("coordination.k8s.io",), ("leases",)),
        _EVENTS,
    ),
}

SCHEDULER = "kube-scheduler"

_SCHEDULING = (
    _EVENTS,
    Rule(_READ, ("",), ("nodes", "namespaces", "services")),
    Rule(("delete", *_READ), ("",), ("pods",)),
    Rule(("create",), ("",), ("pods/binding",)),
    Rule(_WRITE_STATUS, ("",), ("pods/status",)),
    Rule(_READ, ("policy",), ("poddisruptionbudgets",)),
    Rule(_READ, ("",), ("persistentvolumeclaims", "persistentvolumes")),
    Rule(_READ, ("scheduling.k8s.io",), ("priorityclasses",)),
    Rule(_READ, ("storage.k8s.io",), ("volumeattachments",)),
)


def controller(name: str) -> Identity:
    """The identity of an in-process controller; a `KeyError` is a bug in the caller."""
    if name == SCHEDULER:
        return Identity("system:kube-scheduler", (identity.AUTHENTICATED,))
    if name not in CONTROLLERS:
        raise KeyError(name)
    return identity.service_account("kube-system", name)


GRANTS: tuple[Grant, ...] = (
    Grant("cluster-admin", "Group", identity.ADMINS, (Rule(ALL, ALL, ALL), Rule(ALL, paths=ALL))),
    Grant("system:basic-user", "Group", identity.AUTHENTICATED, _BASIC),
    Grant(
        "system:discovery",
        "Group",
        identity.AUTHENTICATED,
        (Rule(("get",), paths=tuple(sorted(_DISCOVERY))),),
    ),
    Grant("system:public-info-viewer", "Group", identity.AUTHENTICATED, _PUBLIC),
    Grant("system:public-info-viewer", "Group", identity.UNAUTHENTICATED, _PUBLIC),
    Grant("refloat:readonly", "Group", identity.READERS, _readable()),
    Grant("system:kube-scheduler", "User", controller(SCHEDULER).name, _SCHEDULING),
    *(
        Grant(f"system:controller:{name}", "ServiceAccount", controller(name).name, rules)
        for name, rules in CONTROLLERS.items()
    ),
)


@lru_cache(_REMEMBERED)
def grants_of(user: Identity) -> tuple[Grant, ...]:
    """The grants of a user, from its name and its groups."""
    return tuple(
        grant
        for grant in GRANTS
        if (grant.holder in user.groups if grant.kind == "Group" else grant.holder == user.name)
    )


def granting(user: Identity, request: Attributes) -> Grant | None:
    """The first grant of a user that allows this."""
    for grant in grants_of(user):
        if any(rule.allows(request) for rule in grant.rules):
            return grant
    return None


def rules(user: Identity) -> Iterable[Rule]:
    """All rules of a user."""
    for grant in grants_of(user):
        yield from grant.rules
