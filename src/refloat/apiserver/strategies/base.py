# SPDX-License-Identifier: Apache-2.0
"""What most kinds do; the others override it."""

import abc

from refloat.api import kinds, schema
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.schema import Struct
from refloat.apiserver.identity import Call
from refloat.base import gates as known
from refloat.base.gates import Gates


class Strategy(abc.ABC):
    """The behaviour of one kind. Methods change `obj` or `new` in place."""

    create_on_update = False  # a PUT to a name that is not there creates it
    unconditional_update = True  # a PUT without resourceVersion overwrites
    returns_deleted = False  # a delete answers with the object, not with a Status
    orphans_by_default = False  # a plain delete leaves the dependants
    ORPHANS = ""  # and what the user is told then
    has_dependants = True  # a delete may wait for them, or leave them
    only_marked_at_first = False  # a first delete takes nothing away, and says no grace

    def __init__(self, resource: kinds.Resource, gates: Gates) -> None:
        self.resource = resource
        self.gates = gates
        self.error_group = resource.group  # the group that messages name

    def struct(self, held: Object | None = None) -> Struct:
        """The type that a body is read as, given the object that is there already."""
        return schema.struct(self.resource.api_version, self.resource.kind)

    @property
    def force_eviction(self) -> bool:
        """Whether new taints and tolerations may have the effect of KEP-36."""
        return self.gates.enabled(known.TAINT_FORCE_EVICTION)

    def default(self, obj: Object) -> None:  # noqa: B027 - most kinds do nothing
        """Fill in what the user left out."""

    def prepare_create(self, obj: Object, call: Call) -> None:  # noqa: B027 - most kinds do nothing
        """Set what only the server may set."""

    @abc.abstractmethod
    def validate_create(self, obj: Object) -> list[FieldError]: ...

    def complete_create(self, obj: Object) -> None:  # noqa: B027 - most kinds do nothing
        """Add what validation should not see."""

    def prepare_update(self, new: Object, old: Object, call: Call) -> None:
        """Keep what an update may not touch."""
        if "status" in old and self.resource.subresource("status"):
            new["status"] = old["status"]

    @abc.abstractmethod
    def validate_update(self, new: Object, old: Object) -> list[FieldError]: ...

    def prepare_finalize(self, new: Object, old: Object) -> None:  # noqa: B027 - most kinds do nothing
        """Keep what the `finalize` subresource may not touch."""

    def validate_finalize(self, new: Object, old: Object) -> list[FieldError]:
        return self.validate_update(new, old)

    def prepare_status(self, new: Object, old: Object, call: Call) -> None:
        """Keep what a status update may not touch."""
        if "spec" in old:
            new["spec"] = old["spec"]

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        return self.validate_update(new, old)

    def warnings(self, new: Object, old: Object | None) -> list[str]:
        return []

    def status_warnings(self, new: Object, old: Object) -> list[str]:
        """The same for a subresource: what the object itself has is not told again."""
        return []

    def grace(self, obj: Object, requested: int | None) -> int | None:
        """The grace period of a first delete; None for kinds that have none."""
        return None

    def prepare_delete(self, obj: Object, reason: str) -> None:  # noqa: B027 - most kinds do nothing
        """Note on the object what the delete says."""

    def awaits_more(self, obj: Object) -> bool:
        """Is there something besides finalizers that keeps a deleted object?"""
        return False


def keep_metadata(new: Object, old: Object) -> None:
    """For kinds whose status endpoint changes the status and nothing else."""
    for name in ("labels", "annotations", "finalizers", "ownerReferences"):
        if name in old:
            new[name] = old[name]
        else:
            new.pop(name, None)


def bump_generation(new: Object, old: Object) -> None:
    """Count a change of the spec."""
    if new.get("spec") != old.get("spec"):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
