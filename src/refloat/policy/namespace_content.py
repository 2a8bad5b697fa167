# SPDX-License-Identifier: Apache-2.0
"""What is left in a namespace that is being deleted, in the words of its conditions."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from refloat.api import structs, times
from refloat.api.core import Namespace
from refloat.api.kinds import Resource
from refloat.api.meta import Object
from refloat.api.structs import ApiObject

# How many seconds finalizers that others wrote are given before the next look.
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
    """What is left, filled resource by resource."""

    seconds: int = 0
    """How long it may take until it is gone."""
    resources: dict[str, int] = field(default_factory=dict)
    finalizers: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def note(self, resource: Resource, left: Sequence[ApiObject], seconds: int = 0) -> None:
        """These are left; `seconds` is how long they may take by themselves."""
        if not left:
            return
        self.resources[f"{resource.plural}.{resource.group}"] = len(left)
        held = Counter(name for each in left for name in each.metadata.finalizers or ())
        self.finalizers += held
        self.seconds = max(self.seconds, seconds or (FINALIZER_SECONDS if held else 0))
        if not seconds and not held:
            namespace = left[0].metadata.namespace
            self.failures.append(
                f"unexpected items still remain in namespace: {namespace} for gvr: "
                f"{resource.group}/{resource.version}, Resource={resource.plural}"
            )


def conditions(left: Remains, *, pods_remain: bool) -> dict[str, tuple[str, str, str]]:
    """Status, reason and message of each condition.

    While pods remain, nothing is said of what is left: so it is in Kubernetes,
    which only then looks at the rest.
    """
    told = {name: ("False", *fine) for name, fine in _FINE.items()}
    if left.failures:
        text = ", ".join(sorted(left.failures))
        count = len(left.failures)
        message = f"Failed to delete all resource types, {count} remaining: {text}"
        told["NamespaceDeletionContentFailure"] = ("True", "ContentDeletionFailed", message)
    if pods_remain:
        return told
    if left.resources:
        parts = sorted(f"{name} has {n} resource instances" for name, n in left.resources.items())
        message = f"Some resources are remaining: {', '.join(parts)}"
        told["NamespaceContentRemaining"] = ("True", "SomeResourcesRemain", message)
    if left.finalizers:
        parts = sorted(f"{name} in {n} resource instances" for name, n in left.finalizers.items())
        message = f"Some content in the namespace has finalizers remaining: {', '.join(parts)}"
        told["NamespaceFinalizersRemaining"] = ("True", "SomeFinalizersRemain", message)
    return told


def changes(
    namespace: Namespace, told: dict[str, tuple[str, str, str]], *, now: datetime
) -> list[Object]:
    """The conditions that are not there yet in these words."""
    changed: list[Object] = []
    for name, (status, reason, message) in told.items():
        held = structs.find(namespace.status.conditions, name)
        if held is not None and (held.status, held.reason, held.message) == (
            status,
            reason,
            message,
        ):
            continue
        made: Object = {"type": name, "status": status, "reason": reason, "message": message}
        if held is None or held.status != status:
            made["lastTransitionTime"] = times.format_time(now)
        changed.append(made)
    return changed
