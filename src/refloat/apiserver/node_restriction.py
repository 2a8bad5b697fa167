# SPDX-License-Identifier: Apache-2.0
"""What the agent of a node may not do to an object that it may write.

`node_rights` decides from the address; here the object is at hand, the one
that is written and the one that is there. Kubernetes does the same in an
admission plugin of this name, in these words.
"""

from collections.abc import Callable

from refloat.api import errors, kinds, meta, pod_references
from refloat.api.meta import Object
from refloat.apiserver import deletion, identity
from refloat.apiserver.identity import Call

_PODS = kinds.of("pods")
_NODES = kinds.of("nodes")
_LEASES = kinds.of("leases", "coordination.k8s.io")

# Labels in the domains of Kubernetes that a node may give itself.
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
    call: Call, resource: kinds.Resource, obj: Object, uid_of_node: Callable[[str], str]
) -> None:
    """Raise 403 for an object that a node may not create."""
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
    elif resource is _PODS and (cause := _pod_cause(node, obj, uid_of_node)):
        raise _forbidden(resource, obj, cause)


def on_update(call: Call, resource: kinds.Resource, new: Object, old: Object) -> None:
    """Raise 403 for a change that a node may not make, also through a subresource."""
    node = identity.node_name(call.user)
    if node is None:
        return
    if resource is _NODES:
        _check_own(node, old["metadata"]["name"], old)
        _check_node(node, new, old)
    elif resource is _PODS:
        _check_pod(node, new, old)


def on_delete(call: Call, resource: kinds.Resource, obj: Object, options: deletion.Options) -> None:
    """Raise 403 for a delete that a node may not make.

    Kubernetes lets a node delete its pods with any grace period; here it only
    says that a pod has ended, which is a delete without one.
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


def _pod_cause(node: str, pod: Object, uid_of_node: Callable[[str], str]) -> str:
    """Why a node may not create this pod; empty if it may: a mirror pod of its own."""
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
    if cause := _owner_cause(node, owners, uid_of_node):
        return cause
    named = pod_references.first_kind(pod)
    return f'node "{node}" can not create pods that reference {named}' if named else ""


def _owner_cause(node: str, owners: list[Object], uid_of_node: Callable[[str], str]) -> str:
    owner = owners[0] if owners else {}
    wanted = {"apiVersion": "v1", "kind": "Node", "name": node}
    if {key: owner.get(key) for key in wanted} != wanted:
        return f'node "{node}" can only create pods with an owner reference set to itself'
    if not owner.get("controller"):
        which = "a controller owner reference set to itself"
        return f'node "{node}" can only create pods with {which}'
    if owner.get("blockOwnerDeletion"):
        return f'node "{node}" must not set blockOwnerDeletion on an owner reference'
    uid = uid_of_node(node)
    if owner.get("uid") != uid:
        return f"node {node} UID mismatch: expected {owner.get('uid')} got {uid}"
    return ""


def _check_own(node: str, name: str, obj: Object) -> None:
    if name != node:
        cause = f'node "{node}" is not allowed to modify node "{name}"'
        raise _forbidden(_NODES, obj, cause)


def _check_node(node: str, new: Object, old: Object) -> None:
    if (new["spec"].get("taints") or []) != (old["spec"].get("taints") or []):
        raise _forbidden(_NODES, old, f'node "{node}" is not allowed to modify taints')
    owners = "ownerReferences"
    if (new["metadata"].get(owners) or []) != (old["metadata"].get(owners) or []):
        raise _forbidden(_NODES, old, f'node "{node}" is not allowed to modify {owners}')
    if labels := _forbidden_labels(meta.labels(new), meta.labels(old)):
        raise _forbidden(_NODES, old, f"is not allowed to modify labels: {labels}")


def _check_pod(node: str, new: Object, old: Object) -> None:
    if old["spec"].get("nodeName", "") != node:
        which = "pods with spec.nodeName set to itself"
        cause = f'node "{node}" can only update pod status for {which}'
        raise _forbidden(_PODS, old, cause)
    if meta.labels(new) != meta.labels(old):
        cause = f'node "{node}" cannot update labels through pod status'
        raise _forbidden(_PODS, old, cause)


def _forbidden_labels(new: dict[str, str], old: dict[str, str]) -> str:
    """The labels that differ and are not the node's to set."""
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
