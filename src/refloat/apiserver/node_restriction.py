# SPDX-License-Identifier: Apache-2.0
"""NodeRestriction: what a node's agent may not change in an object.

`node_rights` decides from the address; this module compares the old and the new
object. Kubernetes does the same in an admission plugin of this name, with these
messages.
"""

from collections.abc import Callable

from refloat.api import errors, kinds, meta, pod_references
from refloat.api.meta import Object
from refloat.apiserver import deletion, identity, storage_codec
from refloat.apiserver.identity import Call
from refloat.store.contract import Entry

_PODS = kinds.of("pods")
_NODES = kinds.of("nodes")
_LEASES = kinds.of("leases", "coordination.k8s.io")

# Labels in the domains of Kubernetes that a node may set on itself.
_OWN_LABELS = frozenset(
    {
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "kubernetes.io/arch",
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    }
)
_OWN_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_RESERVED_DOMAINS = ("kubernetes.io", "k8s.io")
_RESTRICTED_DOMAIN = ("node-restriction.kubernetes.io",)

_MIRROR = "kubernetes.io/config.mirror"


def on_create(
    call: Call,
    resource: kinds.Resource,
    obj: Object,
    get: Callable[[kinds.Resource, str, str], Entry],
) -> None:
    """Raise 403 for an object that a node may not create; `get` reads another object."""
    node = identity.node_name(call.user)
    if node is None:
        return
    if resource is _NODES:
        _check_own(node, obj["metadata"].get("name", ""), obj)
        if labels := _forbidden_labels(meta.labels(obj), {}):
            cause = f'node "{node}" is not allowed to set the following labels: {labels}'
            raise _forbidden(resource, obj, cause)
    elif resource is _LEASES and obj["metadata"].get("name") != node:
        cause = "can only access node lease with the same name as the requesting node"
        raise _forbidden(resource, obj, cause)
    elif resource is _PODS and (cause := _pod_cause(node, obj, get)):
        raise _forbidden(resource, obj, cause)


def on_update(call: Call, resource: kinds.Resource, new: Object, old: Object) -> None:
    """Raise 403 for a forbidden change, also through a subresource."""
    node = identity.node_name(call.user)
    if node is None:
        return
    if resource is _NODES:
        _check_own(node, old["metadata"]["name"], old)
        may_not = f'node "{node}" is not allowed to modify'
        if (new["spec"].get("taints") or []) != (old["spec"].get("taints") or []):
            raise _forbidden(_NODES, old, f"{may_not} taints")
        owners = "ownerReferences"
        if (new["metadata"].get(owners) or []) != (old["metadata"].get(owners) or []):
            raise _forbidden(_NODES, old, f"{may_not} {owners}")
        if labels := _forbidden_labels(meta.labels(new), meta.labels(old)):
            raise _forbidden(_NODES, old, f"is not allowed to modify labels: {labels}")
    elif resource is _PODS:
        if old["spec"].get("nodeName", "") != node:
            which = "pods with spec.nodeName set to itself"
            raise _forbidden(_PODS, old, f'node "{node}" can only update pod status for {which}')
        if meta.labels(new) != meta.labels(old):
            cause = f'node "{node}" cannot update labels through pod status'
            raise _forbidden(_PODS, old, cause)


def on_delete(call: Call, resource: kinds.Resource, obj: Object, options: deletion.Options) -> None:
    """Raise 403 for a forbidden delete.

    Kubernetes lets a node delete its pods with any grace period. Refloat's agent only
    reports that a pod has ended, which is a delete without grace.
    """
    node = identity.node_name(call.user)
    if node is None or resource is not _PODS:
        return
    if obj["spec"].get("nodeName", "") != node:
        cause = f'node "{node}" can only delete pods with spec.nodeName set to itself'
        raise _forbidden(resource, obj, cause)
    if options.grace_seconds != 0:
        cause = f'node "{node}" can only delete pods with gracePeriodSeconds set to 0'
        raise _forbidden(resource, obj, cause)


def _pod_cause(node: str, pod: Object, get: Callable[[kinds.Resource, str, str], Entry]) -> str:
    """Why a node may not create this pod; empty for a mirror pod of its own."""
    if _MIRROR not in meta.annotations(pod):
        return (
            f'pod does not have "{_MIRROR}" annotation, node "{node}" can only create mirror pods'
        )
    if pod["spec"].get("nodeName", "") != node:
        return f'node "{node}" can only create pods with spec.nodeName set to itself'
    owners = pod["metadata"].get("ownerReferences") or []
    if len(owners) > 1:
        which = "a single owner reference set to itself"
        return f'node "{node}" can only create pods with {which}'
    owner = owners[0] if owners else {}
    if (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) != ("v1", "Node", node):
        return f'node "{node}" can only create pods with an owner reference set to itself'
    if not owner.get("controller"):
        which = "a controller owner reference set to itself"
        return f'node "{node}" can only create pods with {which}'
    if owner.get("blockOwnerDeletion"):
        return f'node "{node}" must not set blockOwnerDeletion on an owner reference'
    uid = storage_codec.unpack(_NODES, get(_NODES, "", node))["metadata"]["uid"]
    if owner.get("uid") != uid:
        return f"node {node} UID mismatch: expected {owner.get('uid')} got {uid}"
    reference = pod_references.first_kind(pod)
    return f'node "{node}" can not create pods that reference {reference}' if reference else ""


def _check_own(node: str, name: str, obj: Object) -> None:
    if name != node:
        cause = f'node "{node}" is not allowed to modify node "{name}"'
        raise _forbidden(_NODES, obj, cause)


def _forbidden_labels(new: dict[str, str], old: dict[str, str]) -> str:
    """The changed labels that a node may not set."""
    if new == old:
        return ""
    changed = (key for key in new.keys() | old.keys() if new.get(key) != old.get(key))
    return ", ".join(sorted(key for key in changed if not _is_own(key)))


def _is_own(label: str) -> bool:
    domain = label.partition("/")[0] if "/" in label else ""
    if _within(domain, _RESTRICTED_DOMAIN):
        return False
    if not _within(domain, _RESERVED_DOMAINS):
        return True
    return label in _OWN_LABELS or _within(domain, _OWN_DOMAINS)


def _within(domain: str, above: tuple[str, ...]) -> bool:
    return any(domain == each or domain.endswith(f".{each}") for each in above)


def _forbidden(resource: kinds.Resource, obj: Object, cause: str) -> errors.StatusError:
    metadata = obj["metadata"]
    name = metadata.get("name") or metadata.get("generateName") or "Unknown"
    return errors.forbidden(resource.group, resource.plural, name, cause)
