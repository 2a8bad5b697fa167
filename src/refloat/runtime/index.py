# SPDX-License-Identifier: Apache-2.0
"""Indexes of a cache, besides the key.

An index maps an object to the values that find the object. Declared indexes make
sure that no lookup scans all objects. The cache keeps them up to date.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from refloat.api import core
from refloat.api.structs import ApiObject

T_contra = TypeVar("T_contra", bound=ApiObject, contravariant=True)


@dataclass(frozen=True, slots=True)
class Index(Generic[T_contra]):
    """The values that find an object; the name is unique within a cache."""

    name: str
    values: Callable[[T_contra], Sequence[str]]


def _node(pod: core.Pod) -> Sequence[str]:
    name = pod.spec.node_name
    return (name,) if name else ()


def _claims(pod: core.Pod) -> Sequence[str]:
    if not pod.spec.volumes:
        return ()
    sources = [each.persistent_volume_claim for each in pod.spec.volumes]
    names = [each.claim_name for each in sources if each is not None]
    return [f"{pod.metadata.namespace}/{each}" for each in dict.fromkeys(names)]


def _controller(obj: ApiObject) -> Sequence[str]:
    owner = obj.metadata.controller
    return (owner.uid,) if owner is not None else ()


NODE: Index[core.Pod] = Index("node", _node)
"""Pods by the name of the node that they are bound to."""

CLAIM: Index[core.Pod] = Index("claim", _claims)
"""Pods by the key of each claim that they name."""

OWNER: Index[ApiObject] = Index(
    "owner", lambda obj: [owner.uid for owner in obj.metadata.owner_references or ()]
)
"""Objects by the uid of each owner."""

CONTROLLER: Index[ApiObject] = Index("controller", _controller)
"""Objects by the uid of the owner that manages them."""

NAMESPACE: Index[ApiObject] = Index("namespace", lambda obj: (obj.metadata.namespace,))


def label(key: str) -> Index[ApiObject]:
    """Objects by the value of a label, without the objects that lack the label."""

    def value(obj: ApiObject) -> Sequence[str]:
        text = (obj.metadata.labels or {}).get(key)
        return () if text is None else (text,)

    return Index(f"label {key}", value)
