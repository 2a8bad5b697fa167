# SPDX-License-Identifier: Apache-2.0
"""Admission: checks and changes of a write that depend on other objects.

The namespace must not be terminating. A pod gets its priority, the two default
tolerations and the topology labels of its node. A new node starts with the taint
not-ready.
"""

from refloat.api import errors, kinds
from refloat.api.meta import Object, is_terminating
from refloat.apiserver import storage_codec, topology_labels
from refloat.apiserver.identity import Call
from refloat.store.contract import Store

_NAMESPACES = kinds.of("namespaces")
_PRIORITY_CLASSES = kinds.of("priorityclasses", "scheduling.k8s.io")

IMMORTAL = ("default", "kube-public", "kube-system")

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"

# How long a pod stays on a node that is not ready or not reachable.
TOLERATION_SECONDS = 300


class Admission:
    """Admits writes, with a look at other objects."""

    def __init__(self, store: Store, toleration_seconds: int = TOLERATION_SECONDS) -> None:
        self._store = store
        self._toleration_seconds = toleration_seconds

    def on_create(self, call: Call, resource: kinds.Resource, obj: Object) -> None:
        if resource.namespaced:
            self._check_namespace(resource, obj)
        if resource.kind == "Pod":
            self._set_priority(obj)
            tolerate_by_default(obj, self._toleration_seconds)
            node = obj["spec"].get("nodeName")
            if node and (labels := topology_labels.of_node(self._store, node)):
                obj["metadata"]["labels"] = {**(obj["metadata"].get("labels") or {}), **labels}
        elif resource.kind == "Node":
            taints = obj["spec"].setdefault("taints", [])
            if not any((t.get("key"), t["effect"]) == (NOT_READY, "NoSchedule") for t in taints):
                taints.append({"key": NOT_READY, "effect": "NoSchedule"})

    def on_update(self, call: Call, resource: kinds.Resource, new: Object, old: Object) -> None:
        if resource.kind == "Pod":
            tolerate_by_default(new, self._toleration_seconds)
            for name in ("priority", "preemptionPolicy"):
                if name in old["spec"]:
                    new["spec"].setdefault(name, old["spec"][name])

    def recheck(self, resource: kinds.Resource, obj: Object) -> None:
        """Check again what another write may have changed since `on_create`."""
        if resource.namespaced:
            self._check_namespace(resource, obj)

    def validate(self, resource: kinds.Resource, obj: Object, own: str) -> None:
        """Check a valid object against others: there is one default PriorityClass at most.

        `own` is the name of the existing object that an update changes.
        """
        if resource is not _PRIORITY_CLASSES or not obj.get("globalDefault"):
            return
        present = self._default_priority_class()
        if present is not None and present["metadata"]["name"] != own:
            raise errors.forbidden(
                resource.group,
                resource.plural,
                _shown_name(obj),
                f"PriorityClass {present['metadata']['name']} is already marked as default. "
                "Only one default can exist",
            )

    def on_delete(self, resource: kinds.Resource, name: str) -> None:
        if resource is _NAMESPACES and name in IMMORTAL:
            raise errors.forbidden("", "namespaces", name, "this namespace may not be deleted")

    def _check_namespace(self, resource: kinds.Resource, obj: Object) -> None:
        name = obj["metadata"]["namespace"]
        entry = self._store.get(storage_codec.key(_NAMESPACES, "", name))
        if entry is None:
            raise errors.not_found("", "namespaces", name)
        # The cheap check first: most namespaces are not terminating.
        if b'"deletionTimestamp"' not in entry.value:
            return
        if is_terminating(storage_codec.unpack(_NAMESPACES, entry)):
            message = (
                f"unable to create new content in namespace {name} because it is being terminated"
            )
            error = errors.forbidden(resource.group, resource.plural, _shown_name(obj), message)
            assert error.details is not None
            error.details["causes"] = [
                {
                    "reason": "NamespaceTerminating",
                    "message": f"namespace {name} is being terminated",
                    "field": "metadata.namespace",
                }
            ]
            raise error

    def _set_priority(self, pod: Object) -> None:
        """Resolve the pod's priority class (or the default one) to a number."""
        spec = pod["spec"]
        name = spec.get("priorityClassName", "")
        priority_class = self._priority_class(name) if name else self._default_priority_class()
        if name and priority_class is None:
            raise errors.forbidden(
                "", "pods", _shown_name(pod), f"no PriorityClass with name {name} was found"
            )
        computed = {
            "priority": (priority_class or {}).get("value", 0),
            "preemptionPolicy": (priority_class or {}).get(
                "preemptionPolicy", "PreemptLowerPriority"
            ),
        }
        for field, value in computed.items():
            if spec.get(field, value) != value:
                title = "string value of PreemptionPolicy"
                if field == "priority":
                    title = "integer value of priority"
                raise errors.forbidden(
                    "",
                    "pods",
                    _shown_name(pod),
                    f"the {title} ({spec[field]}) must not be provided in pod spec; "
                    f"priority admission controller computed {value} from the given "
                    "PriorityClass name",
                )
        if priority_class is not None:
            spec["priorityClassName"] = priority_class["metadata"]["name"]
        spec.update(computed)

    def _priority_class(self, name: str) -> Object | None:
        entry = self._store.get(storage_codec.key(_PRIORITY_CLASSES, "", name))
        return None if entry is None else storage_codec.unpack(_PRIORITY_CLASSES, entry)

    def _default_priority_class(self) -> Object | None:
        """The global default; if several classes are marked, the one with the lowest value."""
        entries = self._store.page(storage_codec.prefix(_PRIORITY_CLASSES)).entries
        marked = [
            storage_codec.unpack(_PRIORITY_CLASSES, entry)
            for entry in entries
            if b'"globalDefault":true' in entry.value
        ]
        return min(marked, key=lambda each: each.get("value", 0), default=None)


def _shown_name(obj: Object) -> str:
    """The name in a refusal: an object may not have its generated name yet."""
    metadata = obj["metadata"]
    return metadata.get("name") or metadata.get("generateName") or "Unknown"


def tolerate_by_default(pod: Object, seconds: int = TOLERATION_SECONDS) -> None:
    """Add the two tolerations that every pod has (behaviour C4.1, C4.2)."""
    present = pod["spec"].get("tolerations") or []
    missing = [
        key
        for key in (NOT_READY, UNREACHABLE)
        if not any(
            each.get("key", "") in ("", key) and each.get("effect", "") in ("", "NoExecute")
            for each in present
        )
    ]
    if missing:
        pod["spec"]["tolerations"] = present + [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
            for key in missing
        ]
