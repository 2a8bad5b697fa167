# SPDX-License-Identifier: Apache-2.0
"""Which nodes a pod asks for by `spec.affinity.nodeAffinity`.

Compiled once for all pods with the same affinity. Terms are alternatives, all requirements of a
term must hold, and an unreadable term matches nothing, as in Kubernetes. `fit` checks
`spec.nodeSelector`; affinity between pods is not supported.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from refloat.api import integers, selectors
from refloat.api.structs import LabelSelectorRequirement, Partial

_OPERATORS = {
    "In": "in",
    "NotIn": "notin",
    "Exists": "exists",
    "DoesNotExist": "!",
    "Gt": ">",
    "Lt": "<",
}

# Distinct affinities that are kept compiled: more than there are Jobs at a time.
_CACHED = 4096

_NAME = "metadata.name"


class _Term(Partial, frozen=True):
    match_expressions: tuple[LabelSelectorRequirement, ...] | None = None
    match_fields: tuple[LabelSelectorRequirement, ...] | None = None


class _Preferred(Partial, frozen=True):
    weight: int = 0
    preference: _Term = _Term()


class _Required(Partial, frozen=True):
    node_selector_terms: tuple[_Term, ...] | None = None


class _NodeAffinity(Partial, frozen=True):
    required: _Required | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[_Preferred, ...] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class _Affinity(Partial, frozen=True):
    node_affinity: _NodeAffinity | None = None


_decoder = msgspec.json.Decoder(_Affinity)


@dataclass(frozen=True, slots=True)
class Term:
    """Requirements on labels, and on the name, that must all hold."""

    labels: selectors.LabelSelector
    named: tuple[str, ...] = ()
    not_named: tuple[str, ...] = ()

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        return (
            all(name == each for each in self.named)
            and name not in self.not_named
            and self.labels.matches(labels)
        )


@dataclass(frozen=True, slots=True)
class NodeAffinity:
    """The required terms (None: nothing required), and the preferred ones with weights."""

    required: tuple[Term, ...] | None
    preferred: tuple[tuple[int, Term], ...]
    names: tuple[str, ...] | None
    """The only nodes that can match, if all terms name theirs; empty if they contradict."""

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        if self.required is None:
            return True
        return any(term.matches(name, labels) for term in self.required)

    def liking(self, name: str, labels: Mapping[str, str]) -> int:
        """The sum of the weights of the preferences that a node meets."""
        return sum(weight for weight, term in self.preferred if term.matches(name, labels))


NONE = NodeAffinity(None, (), None)


@lru_cache(_CACHED)
def compiled(affinity: bytes) -> NodeAffinity:
    """Compile a pod's `affinity` in JSON; empty without one."""
    node_affinity = _decoder.decode(affinity).node_affinity if affinity else None
    if node_affinity is None:
        return NONE
    required, names = None, None
    if node_affinity.required is not None:
        terms = node_affinity.required.node_selector_terms or ()
        required = _all_compiled(terms)
        names = _names(terms)
    preferred = tuple(
        (each.weight, term)
        for each in node_affinity.preferred or ()
        for term in _all_compiled((each.preference,))
    )
    return NodeAffinity(required, preferred, names)


def _all_compiled(terms: tuple[_Term, ...]) -> tuple[Term, ...]:
    compiled_terms = (_term(each) for each in terms)
    return tuple(each for each in compiled_terms if each is not None)


def _term(term: _Term) -> Term | None:
    """The compiled term; None for an empty or unreadable term, which matches nothing."""
    if not term.match_expressions and not term.match_fields:
        return None
    requirements = [_requirement(each) for each in term.match_expressions or ()]
    readable = [each for each in requirements if each is not None]
    fields = [
        each
        for each in term.match_fields or ()
        if each.key == _NAME and each.operator in ("In", "NotIn") and len(each.values or ()) == 1
    ]
    if len(readable) < len(requirements) or len(fields) < len(term.match_fields or ()):
        return None
    return Term(
        selectors.LabelSelector(readable),
        tuple((each.values or ("",))[0] for each in fields if each.operator == "In"),
        tuple((each.values or ("",))[0] for each in fields if each.operator == "NotIn"),
    )


def _requirement(requirement: LabelSelectorRequirement) -> selectors.Requirement | None:
    operator, values = _OPERATORS.get(requirement.operator), requirement.values or ()
    if operator is None:
        return None
    if operator in (">", "<"):
        number = _integer(values[0]) if len(values) == 1 else None
        if number is None:
            return None
        values = (str(number),)
    return selectors.Requirement(requirement.key, operator, values)


def _integer(text: str) -> int | None:
    try:
        return integers.signed(text)
    except integers.NotInteger:
        return None


def _names(terms: tuple[_Term, ...]) -> tuple[str, ...] | None:
    """The nodes that the terms name, if each of them names some."""
    names: dict[str, None] = {}
    for term in terms:
        sets = [
            set(each.values or ())
            for each in term.match_fields or ()
            if each.key == _NAME and each.operator == "In"
        ]
        if not sets:
            return None
        names.update(dict.fromkeys(sorted(set.intersection(*sets))))
    return tuple(names) if terms else None
