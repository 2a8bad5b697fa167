# SPDX-License-Identifier: Apache-2.0
"""The objects in the caches of all kinds, and their owners.

Caches may be behind; the controller deletes nothing because of the caches alone.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from refloat.api import kinds
from refloat.api.kinds import Resource
from refloat.api.structs import ApiObject, ObjectMeta, OwnerReference
from refloat.client.contract import Kind
from refloat.runtime import index
from refloat.runtime.cache import Cache

# Events name objects but have no owners.
RESOURCES = tuple(each for each in kinds.RESOURCES if each.plural != "events")

KINDS: dict[Resource, Kind[ApiObject]] = {each: Kind(each, ApiObject) for each in RESOURCES}

_BY_NAME = {(each.group, each.plural): each for each in RESOURCES}

# How many deleted owners are remembered; as many as in Kubernetes.
_GONE = 500


class ObjectRef(NamedTuple):
    """One object of any kind, with its uid."""

    group: str
    plural: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, resource: Resource, meta: ObjectMeta) -> "ObjectRef":
        return cls(resource.group, resource.plural, meta.namespace, meta.name, meta.uid)

    @property
    def resource(self) -> Resource:
        return _BY_NAME[self.group, self.plural]

    @property
    def kind(self) -> Kind[ApiObject]:
        return KINDS[self.resource]


def owner_ref(owner: OwnerReference, namespace: str) -> ObjectRef | None:
    """The object that an owner reference names; None for an unknown kind."""
    resource = kinds.BY_KIND.get((owner.api_version, owner.kind))
    if resource is None or resource not in KINDS:
        return None
    place = namespace if resource.namespaced else ""
    return ObjectRef(resource.group, resource.plural, place, owner.name, owner.uid)


@dataclass(slots=True)
class OwnerGraph:
    caches: Mapping[Resource, Cache[ApiObject]]
    _gone: OrderedDict[ObjectRef, None] = field(default_factory=OrderedDict)

    def get(self, ref: ObjectRef) -> ObjectMeta | None:
        key = f"{ref.namespace}/{ref.name}" if ref.namespace else ref.name
        obj = self.caches[ref.resource].get(key)
        if obj is None or obj.metadata.uid != ref.uid:
            return None
        return obj.metadata

    def dependents(self, owner: ObjectRef) -> Iterable[tuple[ObjectRef, ObjectMeta]]:
        """Objects that name this owner: in its own namespace, or anywhere if it has none.

        Users of other namespaces can write its uid, too, and could block its deletion.
        """
        for resource, cache in self.caches.items():
            for obj in cache.by(index.OWNER, owner.uid):
                if not owner.namespace or obj.metadata.namespace == owner.namespace:
                    yield ObjectRef.of(resource, obj.metadata), obj.metadata

    def owners(self, meta: ObjectMeta) -> Iterable[ObjectRef]:
        """The owners of known kinds."""
        for owner in meta.owner_references or ():
            ref = owner_ref(owner, meta.namespace)
            if ref is not None:
                yield ref

    def is_elsewhere(self, ref: ObjectRef) -> bool:
        """Whether this owner exists in another namespace."""
        return any(
            each.metadata.uid == ref.uid and each.metadata.namespace != ref.namespace
            for each in self.caches[ref.resource]
        )

    def note_gone(self, ref: ObjectRef) -> None:
        self._gone[ref] = None
        if len(self._gone) > _GONE:
            self._gone.popitem(last=False)

    def is_gone(self, ref: ObjectRef) -> bool:
        """Whether this object was seen to be deleted; a uid never returns."""
        return ref in self._gone
