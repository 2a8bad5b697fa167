# SPDX-License-Identifier: Apache-2.0
"""Which kinds there are, under which names and addresses.

The one table that routes, discovery, the codec and the clients read. What a
kind's fields are stands in `schema.py`; how it behaves, in the API server.
"""

from dataclasses import dataclass

STANDARD_VERBS = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
)


@dataclass(frozen=True, slots=True)
class Subresource:
    """A subresource, a part of an object with an address."""

    name: str
    verbs: tuple[str, ...]
    kind: str = ""  # the body's kind, if not the parent's
    group: str = ""
    version: str = ""


STATUS = Subresource("status", ("get", "patch", "update"))


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind and the addresses that serve the kind."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[Subresource, ...] = ()
    verbs: tuple[str, ...] = STANDARD_VERBS

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def stored_as(self) -> str:
        """The first part of the keys; both Event kinds are one in the store."""
        if self.plural == "events":
            return "events"
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def subresource(self, name: str) -> Subresource | None:
        return next((each for each in self.subresources if each.name == name), None)


_STREAM = ("create", "get")

RESOURCES: tuple[Resource, ...] = (
    Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, short_names=("cm",)),
    Resource("", "v1", "events", "Event", namespaced=True, short_names=("ev",)),
    Resource(
        "",
        "v1",
        "namespaces",
        "Namespace",
        namespaced=False,
        short_names=("ns",),
        subresources=(Subresource("finalize", ("update",)), STATUS),
        verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
    ),
    Resource(
        "", "v1", "nodes", "Node", namespaced=False, short_names=("no",), subresources=(STATUS,)
    ),
    Resource(
        "",
        "v1",
        "persistentvolumeclaims",
        "PersistentVolumeClaim",
        namespaced=True,
        short_names=("pvc",),
        subresources=(STATUS,),
    ),
    Resource(
        "",
        "v1",
        "persistentvolumes",
        "PersistentVolume",
        namespaced=False,
        short_names=("pv",),
        subresources=(STATUS,),
    ),
    Resource(
        "",
        "v1",
        "pods",
        "Pod",
        namespaced=True,
        short_names=("po",),
        categories=("all",),
        subresources=(
            Subresource("attach", _STREAM, "PodAttachOptions"),
            Subresource("binding", ("create",), "Binding"),
            Subresource("eviction", ("create",), "Eviction", "policy", "v1"),
            Subresource("exec", _STREAM, "PodExecOptions"),
            Subresource("log", ("get",)),
            Subresource("portforward", _STREAM, "PodPortForwardOptions"),
            STATUS,
        ),
    ),
    Resource("", "v1", "secrets", "Secret", namespaced=True),
    Resource("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True, short_names=("sa",)),
    Resource(
        "",
        "v1",
        "services",
        "Service",
        namespaced=True,
        short_names=("svc",),
        categories=("all",),
        subresources=(STATUS,),
    ),
    Resource(
        "batch",
        "v1",
        "jobs",
        "Job",
        namespaced=True,
        categories=("all",),
        subresources=(STATUS,),
    ),
    Resource("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True),
    Resource("events.k8s.io", "v1", "events", "Event", namespaced=True, short_names=("ev",)),
    Resource(
        "policy",
        "v1",
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        namespaced=True,
        short_names=("pdb",),
        subresources=(STATUS,),
    ),
    Resource(
        "scheduling.k8s.io",
        "v1",
        "priorityclasses",
        "PriorityClass",
        namespaced=False,
        short_names=("pc",),
    ),
    Resource(
        "storage.k8s.io",
        "v1",
        "volumeattachments",
        "VolumeAttachment",
        namespaced=False,
        subresources=(STATUS,),
    ),
)

_ANSWER_ONLY = ("create",)

VIRTUAL: tuple[Resource, ...] = (
    Resource(
        "authentication.k8s.io",
        "v1",
        "selfsubjectreviews",
        "SelfSubjectReview",
        namespaced=False,
        verbs=_ANSWER_ONLY,
    ),
    Resource(
        "authorization.k8s.io",
        "v1",
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
        namespaced=False,
        verbs=_ANSWER_ONLY,
    ),
    Resource(
        "authorization.k8s.io",
        "v1",
        "selfsubjectrulesreviews",
        "SelfSubjectRulesReview",
        namespaced=False,
        verbs=_ANSWER_ONLY,
    ),
)
"""Questions that are answered and never stored; not in `BY_PLURAL`."""

BY_PLURAL = {(each.group, each.version, each.plural): each for each in RESOURCES}
BY_KIND = {(each.api_version, each.kind): each for each in RESOURCES}


def of(plural: str, group: str = "", version: str = "v1") -> Resource:
    """The resource with this address; a `KeyError` is a bug in the caller."""
    return BY_PLURAL[group, version, plural]
