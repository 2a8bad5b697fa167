# SPDX-License-Identifier: Apache-2.0
"""What is known of all objects and who owns them, from the caches of all kinds.

Caches may be behind; nothing is deleted on their word alone.
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

# Events have owners' names but are nobody's.
RESOURCES = tuple(each for each in kinds.RESOURCES if each.plural != "events")

KINDS: dict[Resource, Kind[ApiObject]] = {each: Kind(each, ApiObject) for each in RESOURCES}

_BY_NAME = {(each.group, each.plural): each for each in RESOURCES}

# How many owners are remembered to be gone; as many as Kubernetes remembers.
_GONE = 500


class Ref(NamedTuple):
    """One very object, of whatever kind."""

    group: str
    plural: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, resource: Resource, meta: ObjectMeta) -> "Ref":
        return cls(resource.group, resource.plural, meta.namespace, meta.name, meta.uid)

    @property
    def resource(self) -> Resource:
        return _BY_NAME[self.group, self.plural]

    @property
    def kind(self) -> Kind[ApiObject]:
        return KINDS[self.resource]


def owner_ref(owner: OwnerReference, namespace: str) -> Ref | None:
    """Where an owner of an object in this namespace would be; none of a kind nobody serves."""
    resource = kinds.BY_KIND.get((owner.api_version, owner.kind))
    if resource is None or resource not in KINDS:
        return None
    place = namespace if resource.namespaced else ""
    return Ref(resource.group, resource.plural, place, owner.name, owner.uid)


@dataclass(slots=True)
class Known:
    caches: Mapping[Resource, Cache[ApiObject]]
    _gone: OrderedDict[Ref, None] = field(default_factory=OrderedDict)

    def get(self, ref: Ref) -> ObjectMeta | None:
        key = f"{ref.namespace}/{ref.name}" if ref.namespace else ref.name
        found = self.caches[ref.resource].get(key)
        if found is None or found.metadata.uid != ref.uid:
            return None
        return found.metadata

    def dependents(self, owner: Ref) -> Iterable[tuple[Ref, ObjectMeta]]:
        """What names it as an owner: in its own namespace, or anywhere if it is in none.

        A user of another namespace can write its uid too, and could keep it from going.
        """
        for resource, cache in self.caches.items():
            for obj in cache.by(index.OWNER, owner.uid):
                if not owner.namespace or obj.metadata.namespace == owner.namespace:
                    yield Ref.of(resource, obj.metadata), obj.metadata

    def owners(self, meta: ObjectMeta) -> Iterable[Ref]:
        """Those of a kind that is served."""
        for owner in meta.owner_references or ():
            ref = owner_ref(owner, meta.namespace)
            if ref is not None:
                yield ref

    def is_elsewhere(self, ref: Ref) -> bool:
        """Is this owner in another namespace than it should be?"""
        return any(
            each.metadata.uid == ref.uid and each.metadata.namespace != ref.namespace
            for each in self.caches[ref.resource]
        )

    def note_gone(self, ref: Ref) -> None:
        self._gone[ref] = None
        if len(self._gone) > _GONE:
            self._gone.popitem(last=False)

    def is_gone(self, ref: Ref) -> bool:
        """Known to be: a uid never returns."""
        return ref in self._gone
