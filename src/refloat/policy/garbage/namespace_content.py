# SPDX-License-Identifier: Apache-2.0
"""What remains in a namespace that is being deleted, in the words of its conditions."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from refloat.api import structs, times
from refloat.api.core import Namespace
from refloat.api.kinds import Resource
from refloat.api.meta import Object
from refloat.api.structs import ApiObject

# How many seconds other controllers have to remove their finalizers before the next check.
FINALIZER_SECONDS = 15

_FINE = {
    "NamespaceDeletionDiscoveryFailure": (
        "ResourcesDiscovered",
        "All resources successfully discovered",
    ),
    "NamespaceDeletionGroupVersionParsingFailure": (
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": (
        "ContentHasNoFinalizers",
        "All content-preserving finalizers finished",
    ),
}


@dataclass(slots=True)
class Remains:
    """The remaining objects, resource by resource."""

    seconds: int = 0
    """Seconds until the objects may be gone."""
    resources: dict[str, int] = field(default_factory=dict)
    finalizers: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def note(self, resource: Resource, objects: Sequence[ApiObject], seconds: int = 0) -> None:
        """Note remaining objects; `seconds` is how long they may take to end."""
        if not objects:
            return
        self.resources[f"{resource.plural}.{resource.group}"] = len(objects)
        finalizers = Counter(name for each in objects for name in each.metadata.finalizers or ())
        self.finalizers += finalizers
        self.seconds = max(self.seconds, seconds or (FINALIZER_SECONDS if finalizers else 0))
        if not seconds and not finalizers:
            namespace = objects[0].metadata.namespace
            self.failures.append(
                f"unexpected items still remain in namespace: {namespace} for gvr: "
                f"{resource.group}/{resource.version}, Resource={resource.plural}"
            )


def conditions(remains: Remains, *, pods_remain: bool) -> dict[str, tuple[str, str, str]]:
    """Status, reason and message of each condition.

    While pods remain, other objects are not mentioned, as in Kubernetes, which deletes them only
    after the pods.
    """
    texts = {name: ("False", *fine) for name, fine in _FINE.items()}
    if remains.failures:
        text = ", ".join(sorted(remains.failures))
        count = len(remains.failures)
        message = f"Failed to delete all resource types, {count} remaining: {text}"
        texts["NamespaceDeletionContentFailure"] = ("True", "ContentDeletionFailed", message)
    if pods_remain:
        return texts
    if remains.resources:
        parts = sorted(
            f"{name} has {n} resource instances" for name, n in remains.resources.items()
        )
        message = f"Some resources are remaining: {', '.join(parts)}"
        texts["NamespaceContentRemaining"] = ("True", "SomeResourcesRemain", message)
    if remains.finalizers:
        parts = sorted(
            f"{name} in {n} resource instances" for name, n in remains.finalizers.items()
        )
        message = f"Some content in the namespace has finalizers remaining: {', '.join(parts)}"
        texts["NamespaceFinalizersRemaining"] = ("True", "SomeFinalizersRemain", message)
    return texts


def changes(
    namespace: Namespace, texts: dict[str, tuple[str, str, str]], *, now: datetime
) -> list[Object]:
    """The conditions to write: those that are missing or have other texts."""
    changed: list[Object] = []
    for name, (status, reason, message) in texts.items():
        current = structs.find(namespace.status.conditions, name)
        if current is not None and (current.status, current.reason, current.message) == (
            status,
            reason,
            message,
        ):
            continue
        condition: Object = {"type": name, "status": status, "reason": reason, "message": message}
        if current is None or current.status != status:
            condition["lastTransitionTime"] = times.format_time(now)
        changed.append(condition)
    return changed
