# SPDX-License-Identifier: Apache-2.0
"""What of a pod's specification may change once it is there.

Images, a nearer deadline, more tolerations; fewer scheduling gates, and while
there are any, a narrower choice of nodes.
"""

from collections.abc import Mapping, Sequence

from refloat.api import fields, internal, names
from refloat.api.meta import Object
from refloat.api.validation import pod_affinity, pod_containers
from refloat.api.validation.effects import Effects
from refloat.api.validation.pod_rules import Errors

_SPEC = "core.PodSpec"
_MAX_DEADLINE = 2**31 - 1
_MAY_CHANGE = (
    "`spec.containers[*].image`,"
    "`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` "
    "(allow it to be set to 1 if it was previously negative)"
)
_TERMS_PATH = f"spec.affinity.nodeAffinity.{pod_affinity.REQUIRED}.nodeSelectorTerms"


def check_spec_change(new: Object, old: Object, errors: Errors, effects: Effects) -> None:
    for kind in ("containers", "initContainers"):
        if not _check_containers(new, old, kind, errors):
            return
    if not _check_deadline(new, old, errors):
        return
    _check_tolerations(new, old, errors, effects)
    _check_gates(new, old, errors)
    if new == old or internal.equal(_SPEC, new, old):
        return
    masked = _mask_allowed(new, old)
    if old.get("schedulingGates"):
        _check_narrowed(new, old, masked, errors)
    if not internal.equal(_SPEC, masked, old):
        detail = f"pod updates may not change fields other than {_MAY_CHANGE}\n"
        errors.append(fields.forbidden("spec", detail + internal.diff(_SPEC, old, masked)))


def _check_containers(new: Object, old: Object, kind: str, errors: Errors) -> bool:
    """Whether the containers are the same ones, so that they can be compared."""
    after, before = new.get(kind) or (), old.get(kind) or ()
    if len(after) != len(before):
        detail = "pod updates may not add or remove containers"
        errors.append(fields.forbidden(f"spec.{kind}", detail))
        return False
    for i, container in enumerate(after):
        path = f"spec.{kind}[{i}]"
        if not container.get("image"):
            errors.append(fields.required(f"{path}.image"))
        pod_containers.check_image_unpadded(container, path, errors)
    return True


def _check_deadline(new: Object, old: Object, errors: Errors) -> bool:
    """Whether the deadline may be so; if not, nothing else is looked at."""
    path = "spec.activeDeadlineSeconds"
    after, before = new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds")
    if after is None:
        if before is not None:
            detail = "must not update from a positive integer to nil value"
            errors.append(fields.invalid(path, None, detail))
        return True
    if not 0 <= after <= _MAX_DEADLINE:
        detail = names.inclusive_range(0, _MAX_DEADLINE)
    elif before is not None and before < after:
        detail = "must be less than or equal to previous value"
    else:
        return True
    errors.append(fields.invalid(path, after, detail))
    return False


def _check_tolerations(new: Object, old: Object, errors: Errors, effects: Effects) -> None:
    after = new.get("tolerations") or []
    kept = {_without_seconds(each) for each in after}
    if any(_without_seconds(each) not in kept for each in old.get("tolerations") or ()):
        detail = "existing toleration can not be modified except its tolerationSeconds"
        errors.append(fields.forbidden("spec.tolerations", detail))
        return
    pod_affinity.check_tolerations(after, "spec.tolerations", errors, effects)


def _without_seconds(toleration: Object) -> frozenset[tuple[str, str]]:
    return frozenset(
        (key, value)
        for key, value in toleration.items()
        if value not in (None, "") and key != "tolerationSeconds"
    )


def _check_gates(new: Object, old: Object, errors: Errors) -> None:
    """No gate is added; one that is there twice is told where it is last."""
    known = {each.get("name", "") for each in old.get("schedulingGates") or ()}
    given = enumerate(new.get("schedulingGates") or ())
    last = {gate.get("name", ""): i for i, gate in given}
    for name, i in last.items():
        if name not in known:
            detail = f"only deletion is allowed, but found new scheduling gate '{name}'"
            errors.append(fields.forbidden(f"spec.schedulingGates[{i}].name", detail))


def _mask_allowed(new: Object, old: Object) -> Object:
    """The new specification with everything that may change as it was."""
    masked = dict(new)
    for kind in ("containers", "initContainers"):
        if kind in new:
            pairs = zip(new[kind], old[kind], strict=True)
            masked[kind] = [{**one, "image": other.get("image", "")} for one, other in pairs]
    keys = ["activeDeadlineSeconds", "schedulingGates", "tolerations"]
    grace = "terminationGracePeriodSeconds"
    if old.get(grace, 0) < 0 and new.get(grace) == 1:
        keys.append(grace)
    _restore(masked, old, keys)
    return masked


def _restore(masked: Object, old: Object, keys: Sequence[str]) -> None:
    for key in keys:
        if key in old:
            masked[key] = old[key]
        else:
            masked.pop(key, None)


def _check_narrowed(new: Object, old: Object, masked: Object, errors: Errors) -> None:
    """The choice of nodes of a gated pod, which may become smaller."""
    _check_selector(new.get("nodeSelector") or {}, old.get("nodeSelector") or {}, errors)
    _restore(masked, old, ("nodeSelector",))
    after = (new.get("affinity") or {}).get("nodeAffinity")
    before = (old.get("affinity") or {}).get("nodeAffinity")
    if not internal.equal("*core.NodeAffinity", after, before):
        _check_terms(_terms(after), _terms(before), errors)
        _restore_node_affinity(masked, old, before)


def _restore_node_affinity(masked: Object, old: Object, before: Object | None) -> None:
    affinity = dict(masked.get("affinity") or {})
    if before is None:
        affinity.pop("nodeAffinity", None)
    else:
        affinity["nodeAffinity"] = before
    if affinity or "affinity" in old:
        masked["affinity"] = affinity
    else:
        masked.pop("affinity", None)


def _check_selector(after: Mapping[str, str], before: Mapping[str, str], errors: Errors) -> None:
    if any(after.get(key) != value for key, value in before.items()):
        detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        shown = {key: after[key] for key in sorted(after)} or None
        errors.append(fields.invalid("spec.nodeSelector", shown, detail))


def _terms(affinity: Object | None) -> list[Object]:
    required = (affinity or {}).get(pod_affinity.REQUIRED) or {}
    return required.get("nodeSelectorTerms") or []


def _check_terms(after: list[Object], before: list[Object], errors: Errors) -> None:
    if not before:
        return
    if len(after) != len(before):
        detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        shown = internal.shown("[]core.NodeSelectorTerm", after or None)
        errors.append(fields.invalid(_TERMS_PATH, shown, detail))
        return
    for i, (new, old) in enumerate(zip(after, before, strict=True)):
        if not _only_adds(new, old):
            detail = "only additions are allowed (no mutations or deletions)"
            shown = internal.shown("core.NodeSelectorTerm", new)
            errors.append(fields.invalid(f"{_TERMS_PATH}[{i}]", shown, detail))


def _only_adds(new: Object, old: Object) -> bool:
    """All that a term asked for is asked for still; one that fits nothing stays so."""
    keys = ("matchExpressions", "matchFields")
    if not any(old.get(key) for key in keys):
        return not any(new.get(key) for key in keys)
    return all(
        (new.get(key) or [])[: len(old.get(key) or ())] == (old.get(key) or []) for key in keys
    )
