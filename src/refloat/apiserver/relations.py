# SPDX-License-Identifier: Apache-2.0
"""Which pods a node has, and which objects those pods name.

The index follows the store's log when it is asked and not before, so it needs
no task, is never behind, and costs nothing while no node asks. A question
costs the changes since the last one, each looked at once, plus one look-up
for each pod of the node; the names in a pod are read when first needed, and
never again, because a pod cannot change them.
"""

from collections import defaultdict

import msgspec

from refloat.api import kinds, pod_references
from refloat.api.pod_references import Name
from refloat.apiserver import selection, stored
from refloat.store import errors as store_errors
from refloat.store.contract import Entry, Event, Store

_PODS = kinds.of("pods")
_VOLUMES = kinds.of("persistentvolumes")

# So many changes behind, it begins anew with the pods of today, which holds
# the loop for 45 ms at 20,000 pods; to follow so many takes about 10 ms.
_TOO_FAR = 5_000


class Relations:
    """The pods of each node, as of the newest revision."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._revision = -1
        self._bound: dict[str, dict[str, frozenset[Name] | None]] = {}

    def is_bound(self, node: str, namespace: str, pod: str) -> bool:
        """Is this pod there, and bound to this node?"""
        entry = self._store.get(stored.key(_PODS, namespace, pod))
        return entry is not None and _node_of(entry) == node

    def is_named(self, node: str, plural: str, namespace: str, name: str) -> bool:
        """Does a pod of this node name this object?"""
        self._follow()
        prefix = stored.prefix(_PODS, namespace)
        wanted = (plural, name)
        pods = self._bound.get(node, {})
        return any(key.startswith(prefix) and wanted in self._names(pods, key) for key in pods)

    def claim_of(self, volume: str) -> tuple[str, str] | None:
        """The claim that has this volume: its namespace and name."""
        entry = self._store.get(stored.key(_VOLUMES, "", volume))
        claim = None if entry is None else _VOLUME.decode(entry.value).spec.claimRef
        return None if claim is None or not claim.uid else (claim.namespace, claim.name)

    def _names(self, pods: dict[str, frozenset[Name] | None], key: str) -> frozenset[Name]:
        names = pods[key]
        if names is None:
            entry = self._store.get(key)
            assert entry is not None, "the index is as new as the store"
            names = pods[key] = frozenset(pod_references.named_by(entry.value))
        return names

    def _follow(self) -> None:
        now = self._store.revision
        if now == self._revision:
            return
        if self._revision < 0 or now - self._revision > _TOO_FAR:
            self._begin()
        else:
            try:
                events = self._store.events(stored.prefix(_PODS), after=self._revision)
            except store_errors.Compacted:
                self._begin()
            else:
                for event in events:
                    self._see(event)
        self._revision = now

    def _begin(self) -> None:
        self._bound = defaultdict(dict)
        for entry in self._store.page(stored.prefix(_PODS)).entries:
            if node := _node_of(entry):
                self._bound[node][entry.key] = None

    def _see(self, event: Event) -> None:
        before = "" if event.previous is None else _node_of(event.previous)
        after = "" if event.entry is None else _node_of(event.entry)
        if before == after:
            return
        if before:
            self._bound[before].pop(event.key, None)
            if not self._bound[before]:
                del self._bound[before]
        if after:
            self._bound[after][event.key] = None


class _Claim(msgspec.Struct):
    namespace: str = ""
    name: str = ""
    uid: str = ""  # empty until it is bound


class _VolumeSpec(msgspec.Struct):
    claimRef: _Claim | None = None  # noqa: N815 - the wire's names


class _Volume(msgspec.Struct):
    spec: _VolumeSpec


_VOLUME = msgspec.json.Decoder(_Volume)


class _BoundSpec(msgspec.Struct):
    nodeName: str = ""  # noqa: N815 - the wire's names


class _BoundPod(msgspec.Struct):
    spec: _BoundSpec


_BINDING = msgspec.json.Decoder(_BoundPod)


def _node_of(entry: Entry) -> str:
    """The node of a pod; all that selectors ask for is not read for this alone."""
    if entry.derived is not None:
        return selection.attributes(_PODS, entry).fields["spec.nodeName"]
    return _BINDING.decode(entry.value).spec.nodeName
