# SPDX-License-Identifier: Apache-2.0
"""The changes that a pod's specification allows.

These are images, an earlier deadline, more tolerations and fewer scheduling gates;
for a gated pod also a narrower choice of nodes.
"""

from collections.abc import Sequence

from refloat.api import go_internal_types, names
from refloat.api.meta import Object
from refloat.api.validation import pod_affinity, pod_containers
from refloat.api.validation.effects import Effects
from refloat.api.validation.rules import Errors

_SPEC = "core.PodSpec"
_GRACE = "terminationGracePeriodSeconds"
_MAX_DEADLINE = 2**31 - 1
_MAY_CHANGE = (
    "`spec.containers[*].image`,"
    "`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` "
    "(allow it to be set to 1 if it was previously negative)"
)
_TERM_KEYS = ("matchExpressions", "matchFields")
_TERMS_PATH = f"spec.affinity.nodeAffinity.{pod_affinity.REQUIRED}.nodeSelectorTerms"


def check_spec_change(new: Object, old: Object, errors: Errors, effects: Effects) -> None:
    if not _check_images_and_deadline(new, old, errors):
        return
    tolerations = new.get("tolerations") or []
    after = {_without_seconds(each) for each in tolerations}
    if all(_without_seconds(each) in after for each in old.get("tolerations") or ()):
        pod_affinity.check_tolerations(tolerations, "spec.tolerations", errors, effects)
    else:
        detail = "existing toleration can not be modified except its tolerationSeconds"
        errors.forbidden("spec.tolerations", detail)
    # A new gate is an error; if the gate repeats, the path is that of the last one.
    old_gates = {each.get("name", "") for each in old.get("schedulingGates") or ()}
    gates = {each.get("name", ""): i for i, each in enumerate(new.get("schedulingGates") or ())}
    for name, i in gates.items():
        if name not in old_gates:
            detail = f"only deletion is allowed, but found new scheduling gate '{name}'"
            errors.forbidden(f"spec.schedulingGates[{i}].name", detail)
    if new == old or go_internal_types.equal(_SPEC, new, old):
        return
    # The new specification, with the old values of the fields that may change.
    masked = new | {
        kind: [
            {**one, "image": other.get("image", "")}
            for one, other in zip(new[kind], old[kind], strict=True)
        ]
        for kind in ("containers", "initContainers")
        if kind in new
    }
    _restore(masked, old, ("activeDeadlineSeconds", "schedulingGates", "tolerations"))
    if old.get(_GRACE, 0) < 0 and new.get(_GRACE) == 1:
        _restore(masked, old, (_GRACE,))
    if old.get("schedulingGates"):
        _check_node_choice(new, old, masked, errors)
    if not go_internal_types.equal(_SPEC, masked, old):
        detail = f"pod updates may not change fields other than {_MAY_CHANGE}\n"
        errors.forbidden("spec", detail + go_internal_types.diff(_SPEC, old, masked))


def _check_images_and_deadline(new: Object, old: Object, errors: Errors) -> bool:
    """Whether the checks go on: with as many containers as before, and a deadline that may be."""
    for kind in ("containers", "initContainers"):
        containers = new.get(kind) or ()
        if len(containers) != len(old.get(kind) or ()):
            errors.forbidden(f"spec.{kind}", "pod updates may not add or remove containers")
            return False
        for i, container in enumerate(containers):
            path = f"spec.{kind}[{i}]"
            errors.required_keys(container, ("image",), path)
            pod_containers.check_image_unpadded(container, path, errors)
    path = "spec.activeDeadlineSeconds"
    after, before = new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds")
    if after is None:
        if before is not None:
            errors.invalid(path, None, "must not update from a positive integer to nil value")
        return True
    if not 0 <= after <= _MAX_DEADLINE:
        errors.invalid(path, after, names.inclusive_range(0, _MAX_DEADLINE))
        return False
    if before is not None and before < after:
        errors.invalid(path, after, "must be less than or equal to previous value")
        return False
    return True


def _without_seconds(toleration: Object) -> frozenset[tuple[str, str]]:
    return frozenset(
        (key, value)
        for key, value in toleration.items()
        if value not in (None, "") and key != "tolerationSeconds"
    )


def _restore(masked: Object, old: Object, keys: Sequence[str]) -> None:
    for key in keys:
        if key in old:
            masked[key] = old[key]
        else:
            masked.pop(key, None)


def _check_node_choice(new: Object, old: Object, masked: Object, errors: Errors) -> None:
    """An update may narrow the choice of nodes of a gated pod; `masked` gets the old choice."""
    selector, old_selector = new.get("nodeSelector") or {}, old.get("nodeSelector") or {}
    if any(selector.get(key) != value for key, value in old_selector.items()):
        detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        value_text = {key: selector[key] for key in sorted(selector)} or None
        errors.invalid("spec.nodeSelector", value_text, detail)
    _restore(masked, old, ("nodeSelector",))
    after = (new.get("affinity") or {}).get("nodeAffinity")
    before = (old.get("affinity") or {}).get("nodeAffinity")
    if go_internal_types.equal("*core.NodeAffinity", after, before):
        return
    terms, old_terms = _terms(after), _terms(before)
    if old_terms and len(terms) != len(old_terms):
        detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        terms_text = go_internal_types.shown("[]core.NodeSelectorTerm", terms or None)
        errors.invalid(_TERMS_PATH, terms_text, detail)
    elif old_terms:
        for i, (term, old_term) in enumerate(zip(terms, old_terms, strict=True)):
            pairs = [(term.get(key) or [], old_term.get(key) or []) for key in _TERM_KEYS]
            only_adds = all(one[: len(other)] == other for one, other in pairs)
            # A term without expressions matches no node, and an addition would change that.
            if not any(other for _, other in pairs):
                only_adds = not any(one for one, _ in pairs)
            if not only_adds:
                detail = "only additions are allowed (no mutations or deletions)"
                term_text = go_internal_types.shown("core.NodeSelectorTerm", term)
                errors.invalid(f"{_TERMS_PATH}[{i}]", term_text, detail)
    affinity = dict(masked.get("affinity") or {})
    _restore(affinity, old.get("affinity") or {}, ("nodeAffinity",))
    if affinity or "affinity" in old:
        masked["affinity"] = affinity
    else:
        masked.pop("affinity", None)


def _terms(affinity: Object | None) -> list[Object]:
    required = (affinity or {}).get(pod_affinity.REQUIRED) or {}
    return required.get("nodeSelectorTerms") or []
