# SPDX-License-Identifier: Apache-2.0
"""The behaviour of most kinds; other kinds override methods."""

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

    create_on_update = False  # a PUT to a new name creates the object
    unconditional_update = True  # a PUT without resourceVersion overwrites
    returns_deleted = False  # a delete answers with the object, not with a Status
    orphans_by_default = False  # a plain delete leaves the dependants
    ORPHANS = ""  # the warning for such a delete
    has_dependants = True  # a delete may wait for them, or leave them
    only_marked_at_first = False  # a first delete sets only the deletionTimestamp

    def __init__(self, resource: kinds.Resource, gates: Gates) -> None:
        self.resource = resource
        self.gates = gates
        self.error_group = resource.group  # the group that messages name

    def struct(self, live: Object | None = None) -> Struct:
        """The type of a body; `live` is the stored object."""
        return schema.struct(self.resource.api_version, self.resource.kind)

    @property
    def force_eviction(self) -> bool:
        """Whether new taints and tolerations may have the effect of KEP-36."""
        return self.gates.enabled(known.TAINT_FORCE_EVICTION)

    def default(self, obj: Object, /) -> None:  # noqa: B027 - most kinds do nothing
        """Set defaults."""

    def prepare_create(self, obj: Object, call: Call) -> None:  # noqa: B027 - most kinds do nothing
        """Set the fields that only the server sets."""

    @abc.abstractmethod
    def validate_create(self, obj: Object, /) -> list[FieldError]: ...

    def complete_create(self, obj: Object, /) -> None:  # noqa: B027 - most kinds do nothing
        """Add fields that validation must not see."""

    def prepare_update(self, new: Object, old: Object, call: Call) -> None:
        """Restore the fields that an update may not change."""
        if "status" in old and self.resource.subresource("status"):
            new["status"] = old["status"]

    @abc.abstractmethod
    def validate_update(self, new: Object, old: Object, /) -> list[FieldError]: ...

    def prepare_finalize(self, new: Object, old: Object) -> None:  # noqa: B027 - most kinds do nothing
        """Restore the fields that the `finalize` subresource may not change."""

    def validate_finalize(self, new: Object, old: Object, /) -> list[FieldError]:
        return self.validate_update(new, old)

    def prepare_status(self, new: Object, old: Object, call: Call) -> None:
        """Restore the fields that a status update may not change."""
        if "spec" in old:
            new["spec"] = old["spec"]

    def validate_status(self, new: Object, old: Object, /) -> list[FieldError]:
        return self.validate_update(new, old)

    def warnings(self, new: Object, old: Object | None, /) -> list[str]:
        return []

    def status_warnings(self, new: Object, old: Object, /) -> list[str]:
        """The warnings for a write of a subresource, without those for the object itself."""
        return []

    def grace(self, obj: Object, requested: int | None, /) -> int | None:
        """The grace period of a first delete; None for kinds without one."""
        return None

    def prepare_delete(self, obj: Object, reason: str) -> None:  # noqa: B027 - most kinds do nothing
        """Write the reason of the delete into the object."""

    def awaits_more(self, obj: Object) -> bool:
        """Whether more than metadata.finalizers keeps a deleted object."""
        return False


def keep_metadata(new: Object, old: Object) -> None:
    """Restore the metadata, for kinds whose status endpoint changes only the status."""
    for name in ("labels", "annotations", "finalizers", "ownerReferences"):
        if name in old:
            new[name] = old[name]
        else:
            new.pop(name, None)


def bump_generation(new: Object, old: Object) -> None:
    """Count a change of the spec."""
    if new.get("spec") != old.get("spec"):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
