# SPDX-License-Identifier: Apache-2.0
"""Rules that the fields of several kinds share, and how they are worded.

A kind's module says which of its fields they hold for. Metadata has its own
module beside this one, and so have the rules of pods only.
"""

from collections.abc import Iterable
from typing import Any

from refloat.api import fields, internal, names, quantity
from refloat.api.fields import FieldError
from refloat.api.validation import meta

NOT_POSITIVE = "must be greater than zero"
NOT_INTEGER = "must be an integer"

# Resources that come in whole pieces only.
_WHOLE = frozenset(
    (
        "configmaps",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "services",
        "services.loadbalancers",
        "services.nodeports",
    )
)


def nonnegative(value: int | None, path: str) -> list[FieldError]:
    if value is None or value >= 0:
        return []
    return [fields.invalid(path, value, meta.NEGATIVE)]


def immutable(new: Any, old: Any, path: str, kind: str = "") -> list[FieldError]:
    """The same as before; `kind` names the unversioned type of a structure."""
    if new == old or (kind and internal.equal(kind, new, old)):
        return []
    return [fields.invalid(path, internal.shown(kind, new) if kind else new, meta.IMMUTABLE)]


def unsupported(path: str, value: str, supported: Iterable[str]) -> FieldError:
    """A text of an enumeration's type, which messages show as JSON."""
    return fields.not_supported(path, internal.typed(value), supported)


def named(complaints: Iterable[str], path: str, value: Any) -> list[FieldError]:
    """One mistake for each complaint about a name."""
    return [fields.invalid(path, value, each) for each in complaints]


def nonnegative_quantity(text: str, path: str) -> list[FieldError]:
    return [] if quantity.value(text) >= 0 else [fields.invalid(path, text, meta.NEGATIVE)]


def positive_quantity(text: str, path: str) -> list[FieldError]:
    return [] if quantity.value(text) > 0 else [fields.invalid(path, text, NOT_POSITIVE)]


def resource_quantity(resource: str, text: str, path: str) -> list[FieldError]:
    """An amount of a resource: not negative, and whole where it has to be."""
    mistakes = nonnegative_quantity(text, path)
    if _is_whole(resource) and quantity.value(text) % 1:
        mistakes.append(fields.invalid(path, text, NOT_INTEGER))
    return mistakes


def _is_whole(resource: str) -> bool:
    """Whether it is counted and never divided, as every extended resource is."""
    if "/" not in resource or "kubernetes.io/" in resource:
        return resource in _WHOLE
    return not resource.startswith("requests.") and not names.qualified_name(f"requests.{resource}")
