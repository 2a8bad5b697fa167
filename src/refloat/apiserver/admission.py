# SPDX-License-Identifier: Apache-2.0
"""What is decided about a write beyond the object itself.

The namespace must live; pods get their priority, the tolerations that every
pod has and the topology labels of their node; new nodes start out as not ready.
"""

from refloat.api import errors, kinds
from refloat.api.meta import Object, is_terminating
from refloat.apiserver import stored, topology_labels
from refloat.apiserver.identity import Call
from refloat.store.contract import Store

_NAMESPACES = kinds.of("namespaces")
_PRIORITY_CLASSES = kinds.of("priorityclasses", "scheduling.k8s.io")

IMMORTAL = ("default", "kube-public", "kube-system")

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"

# How long a pod stays bound to a node that is not ready or not reachable.
TOLERATION_SECONDS = 300


class Admission:
    """The checks and changes that need to look at other objects."""

    def __init__(self, store: Store, toleration_seconds: int = TOLERATION_SECONDS) -> None:
        self._store = store
        self._toleration_seconds = toleration_seconds

    def on_create(self, call: Call, resource: kinds.Resource, obj: Object) -> None:
        if resource.namespaced:
            self._check_namespace(resource, obj)
        if resource.kind == "Pod":
            self._set_priority(obj)
            tolerate_by_default(obj, self._toleration_seconds)
            self._label_topology(obj)
        elif resource.kind == "Node":
            _taint_not_ready(obj)

    def on_update(self, call: Call, resource: kinds.Resource, new: Object, old: Object) -> None:
        if resource.kind == "Pod":
            tolerate_by_default(new, self._toleration_seconds)
            for name in ("priority", "preemptionPolicy"):
                if name in old["spec"]:
                    new["spec"].setdefault(name, old["spec"][name])

    def recheck(self, resource: kinds.Resource, obj: Object) -> None:
        """What may have changed since `on_create`."""
        if resource.namespaced:
            self._check_namespace(resource, obj)

    def validate(self, resource: kinds.Resource, obj: Object, own: str) -> None:
        """What is looked at once the object is valid.

        `own` is the name of the object that is there already and would change.
        """
        if resource is _PRIORITY_CLASSES and obj.get("globalDefault"):
            self._check_only_default(obj, own)

    def on_delete(self, resource: kinds.Resource, name: str) -> None:
        if resource is _NAMESPACES and name in IMMORTAL:
            raise errors.forbidden("", "namespaces", name, "this namespace may not be deleted")

    def _check_namespace(self, resource: kinds.Resource, obj: Object) -> None:
        name = obj["metadata"]["namespace"]
        entry = self._store.get(stored.key(_NAMESPACES, "", name))
        if entry is None:
            raise errors.not_found("", "namespaces", name)
        # The cheap look first: most namespaces are not terminating.
        if b'"deletionTimestamp"' not in entry.value:
            return
        if is_terminating(stored.unpack(_NAMESPACES, entry)):
            raise _terminating(resource, _shown_name(obj), name)

    def _set_priority(self, pod: Object) -> None:
        """Resolve the pod's priority class (or the default one) to a number."""
        spec = pod["spec"]
        name = spec.get("priorityClassName", "")
        found = self._priority_class(name) if name else self._default_priority_class()
        if name and found is None:
            raise errors.forbidden(
                "",
                "pods",
                _shown_name(pod),
                f"no PriorityClass with name {name} was found",
            )
        computed = {
            "priority": (found or {}).get("value", 0),
            "preemptionPolicy": (found or {}).get("preemptionPolicy", "PreemptLowerPriority"),
        }
        for field, value in computed.items():
            if spec.get(field, value) != value:
                raise _not_for_users(pod, field, value)
        if found is not None:
            spec["priorityClassName"] = found["metadata"]["name"]
        spec.update(computed)

    def _label_topology(self, pod: Object) -> None:
        """Say on a pod that comes with a node's name where that node is."""
        node = pod["spec"].get("nodeName")
        if node and (found := topology_labels.of_node(self._store, node)):
            pod["metadata"]["labels"] = {**(pod["metadata"].get("labels") or {}), **found}

    def _check_only_default(self, wanted: Object, own: str) -> None:
        present = self._default_priority_class()
        if present is not None and present["metadata"]["name"] != own:
            raise errors.forbidden(
                _PRIORITY_CLASSES.group,
                _PRIORITY_CLASSES.plural,
                _shown_name(wanted),
                f"PriorityClass {present['metadata']['name']} is already marked as default. "
                "Only one default can exist",
            )

    def _priority_class(self, name: str) -> Object | None:
        entry = self._store.get(stored.key(_PRIORITY_CLASSES, "", name))
        return None if entry is None else stored.unpack(_PRIORITY_CLASSES, entry)

    def _default_priority_class(self) -> Object | None:
        """The class marked as the default of all; the lowest, should there be several."""
        entries = self._store.page(stored.prefix(_PRIORITY_CLASSES)).entries
        marked = [
            stored.unpack(_PRIORITY_CLASSES, entry)
            for entry in entries
            if b'"globalDefault":true' in entry.value
        ]
        return min(marked, key=lambda each: each.get("value", 0), default=None)


def _shown_name(obj: Object) -> str:
    """How a refusal names an object that may not have its name yet."""
    metadata = obj["metadata"]
    return metadata.get("name") or metadata.get("generateName") or "Unknown"


def _not_for_users(pod: Object, field: str, computed: int | str) -> errors.StatusError:
    what = (
        "integer value of priority" if field == "priority" else "string value of PreemptionPolicy"
    )
    return errors.forbidden(
        "",
        "pods",
        _shown_name(pod),
        f"the {what} ({pod['spec'][field]}) must not be provided in pod spec; priority admission "
        f"controller computed {computed} from the given PriorityClass name",
    )


def _terminating(resource: kinds.Resource, name: str, namespace: str) -> errors.StatusError:
    error = errors.forbidden(
        resource.group,
        resource.plural,
        name,
        f"unable to create new content in namespace {namespace} because it is being terminated",
    )
    assert error.details is not None
    error.details["causes"] = [
        {
            "reason": "NamespaceTerminating",
            "message": f"namespace {namespace} is being terminated",
            "field": "metadata.namespace",
        }
    ]
    return error


def tolerate_by_default(pod: Object, seconds: int = TOLERATION_SECONDS) -> None:
    """Add the two tolerations that every pod has (behaviour C4.1, C4.2)."""
    present = pod["spec"].get("tolerations") or []
    missing = [key for key in (NOT_READY, UNREACHABLE) if not _tolerates(present, key)]
    if missing:
        pod["spec"]["tolerations"] = present + [
            {
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": seconds,
            }
            for key in missing
        ]


def _tolerates(tolerations: list[Object], key: str) -> bool:
    return any(
        each.get("key", "") in ("", key) and each.get("effect", "") in ("", "NoExecute")
        for each in tolerations
    )


def _taint_not_ready(node: Object) -> None:
    taints = node["spec"].setdefault("taints", [])
    wanted = {"key": NOT_READY, "effect": "NoSchedule"}
    if not any(each.get("key") == NOT_READY and each["effect"] == "NoSchedule" for each in taints):
        taints.append(wanted)
