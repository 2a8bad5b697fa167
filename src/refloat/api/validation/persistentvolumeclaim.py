# SPDX-License-Identifier: Apache-2.0
"""What a PersistentVolumeClaim must be; a bound one may only request more storage."""

from typing import Any

from refloat.api import go_internal_types, names, quantity
from refloat.api import meta as objects
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import meta, persistentvolume, pod_resources
from refloat.api.validation.rules import Errors

CLASS_ANNOTATION = persistentvolume.CLASS_ANNOTATION
RESIZE_STATUSES = (
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
)


def validate_create(claim: Object) -> list[FieldError]:
    return _claim_errors(claim, checks_group=True)


def validate_update(new: Object, old: Object) -> list[FieldError]:
    before = old.get("spec") or {}
    sources = (before.get("dataSource") or {}, before.get("dataSourceRef") or {})
    checks_group = all(each.get("apiGroup") is None for each in sources)
    errors = meta.validate_update(new["metadata"], old["metadata"])
    errors += _claim_errors(new, checks_group=checks_group)
    _check_change(new, old, errors)
    return errors


def _claim_errors(claim: Object, *, checks_group: bool) -> Errors:
    errors = meta.validate(claim["metadata"], namespaced=True, name_check=names.dns_subdomain)
    check_spec(claim.get("spec") or {}, "spec", errors, checks_group=checks_group)
    return errors


def check_spec(spec: Object, path: str, errors: Errors, *, checks_group: bool = True) -> None:
    """The specification of a claim, or of a pod's ephemeral volume."""
    modes = spec.get("accessModes") or []
    if not modes:
        errors.required(f"{path}.accessModes", "at least 1 access mode is required")
    errors += meta.validate_label_selector(spec.get("selector"), f"{path}.selector")
    persistentvolume.check_known_modes(modes, f"{path}.accessModes", errors)
    size = _requests(spec).get("storage")
    if size is None:
        errors.required(f"{path}.resources[storage]")
    else:
        errors.positive_amount(f"{path}.resources[storage]", size)
    if name := spec.get("storageClassName"):
        errors.named(f"{path}.storageClassName", name, names.dns_subdomain)
    mode = spec.get("volumeMode")
    errors.one_of(f"{path}.volumeMode", mode, persistentvolume.VOLUME_MODES)
    _check_sources(spec, path, errors, checks_group=checks_group)
    if name := spec.get("volumeAttributesClassName"):
        errors.named(f"{path}.volumeAttributesClassName", name, names.dns_subdomain)


def _requests(spec: Object) -> dict[str, str]:
    return (spec.get("resources") or {}).get("requests") or {}


def _check_sources(spec: Object, path: str, errors: Errors, *, checks_group: bool) -> None:
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    for where, each in ((f"{path}.dataSource", source), (f"{path}.dataSourceRef", reference)):
        if each is None:
            continue
        errors.required_keys(each, ("name", "kind"), where)
        kind, group = each.get("kind", ""), each.get("apiGroup") or ""
        if not group and kind != "PersistentVolumeClaim":
            detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
            errors.invalid(where, kind, detail)
        if group and checks_group:
            errors.named(f"{where}.apiGroup", group, names.dns_subdomain)
        if namespace := each.get("namespace"):
            errors.named(f"{where}.namespace", namespace, names.dns_label)
    if source is None or reference is None:
        return
    # Kubernetes shows a field path as the value, which is an empty object in JSON.
    if reference.get("namespace"):
        errors.invalid(path, {}, "may not be specified when dataSourceRef.namespace is specified")
    elif any(source.get(key) != reference.get(key) for key in ("apiGroup", "kind", "name")):
        errors.invalid(path, {}, "must match dataSourceRef")


def _check_change(new: Object, old: Object, errors: Errors) -> None:
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    had, has = (objects.annotations(each).get(CLASS_ANNOTATION) for each in (old, new))
    # The update may move the class from the old annotation into the field.
    moves = had is not None and before.get("storageClassName") is None and has in (None, had)
    if not moves or new["spec"].get("storageClassName") != had:
        errors.immutable(f"metadata.annotations.{CLASS_ANNOTATION}", has or "", had or "")
    _check_spec_change(new, old, errors)
    status = old.get("status") or {}
    new_size, old_size = (_amount(_requests(each).get("storage")) for each in (spec, before))
    capacity = _amount((status.get("capacity") or {}).get("storage"))
    if new_size < old_size and new_size <= capacity:
        path = "spec.resources.requests.storage"
        errors.forbidden(path, "field can not be less than status.capacity")
    errors.immutable("volumeMode", spec.get("volumeMode"), before.get("volumeMode"))
    name = "volumeAttributesClassName"
    current = status.get("currentVolumeAttributesClassName")
    if spec.get(name) != before.get(name) and current is not None and not spec.get(name):
        what = "nil" if spec.get(name) is None else "empty string"
        detail = (
            f"update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil"
        )
        errors.forbidden(f"spec.{name}", detail)


def _check_spec_change(new: Object, old: Object, errors: Errors) -> None:
    if new["spec"] == old["spec"]:
        return
    kind = "core.PersistentVolumeClaimSpec"
    spec, before = dict(new["spec"]), dict(old["spec"])
    if not before.get("volumeName"):
        before["volumeName"] = spec.get("volumeName")
    class_name, old_class = spec.get("storageClassName"), before.get("storageClassName")
    if class_name is not None and old_class is None:
        had = objects.annotations(old).get(CLASS_ANNOTATION)
        if had is None or class_name == had:
            spec["storageClassName"] = None
    if (new.get("status") or {}).get("phase") == "Bound":
        spec["volumeAttributesClassName"] = before.get("volumeAttributesClassName")
        if requests := _requests(spec):
            size = _requests(before).get("storage")
            spec["resources"] = spec["resources"] | {"requests": requests | {"storage": size}}
    if not go_internal_types.equal(kind, spec, before):
        detail = (
            "spec is immutable after creation except resources.requests and "
            "volumeAttributesClassName for bound claims\n"
        )
        errors.forbidden("spec", detail + go_internal_types.diff(kind, before, spec))


def _amount(text: str | None) -> Any:
    return quantity.value(text) if text else 0


def validate_status_update(new: Object, old: Object) -> list[FieldError]:
    status = new.get("status") or {}
    errors = meta.validate_update(new["metadata"], old["metadata"])
    if not new["metadata"].get("resourceVersion"):
        errors.required("resourceVersion")
    if not (new.get("spec") or {}).get("accessModes"):
        errors.required("Spec.accessModes")
    for name, amount in (status.get("capacity") or {}).items():
        persistentvolume.check_int64_amount(amount, f"status.capacity[{name}]", errors)
    for name, phase in (status.get("allocatedResourceStatuses") or {}).items():
        path = "status.allocatedResourceStatuses"
        _check_resource_key(name, path, errors)
        if phase not in RESIZE_STATUSES:
            # Kubernetes shows the name and not the status.
            errors.not_supported(path, go_internal_types.typed(name), sorted(RESIZE_STATUSES))
    for name, amount in (status.get("allocatedResources") or {}).items():
        path, before = "status.allocatedResources", len(errors)
        _check_resource_key(name, path, errors)
        if len(errors) == before:
            persistentvolume.check_int64_amount(amount, f"{path}[{name}]", errors)
        if len(errors) == before:
            errors.not_negative_amount(f"{path}[{name}]", amount)
    return errors


def _check_resource_key(name: str, path: str, errors: Errors) -> None:
    if complaints := names.qualified_name(name):
        errors.each(path, name, complaints)
    elif pod_resources.is_native(name) and name != "storage":
        errors.not_supported(path, name, ("storage",))


def warnings(claim: Object) -> list[str]:
    """What is accepted but will not work as written."""
    texts = []
    if CLASS_ANNOTATION in objects.annotations(claim):
        texts.append(
            f"metadata.annotations[{CLASS_ANNOTATION}]: "
            'deprecated since v1.8; use "storageClassName" attribute instead'
        )
    resources = (claim.get("spec") or {}).get("resources") or {}
    for name in ("requests", "limits"):
        size = (resources.get(name) or {}).get("storage")
        if size is not None and quantity.value(size) % 1:
            texts.append(
                f"spec.resources.{name}[storage]: fractional byte value "
                f'"{size}" is invalid, must be an integer'
            )
    return texts
