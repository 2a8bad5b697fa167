# SPDX-License-Identifier: Apache-2.0
"""What a PersistentVolumeClaim must be; a bound one may only ask for more room."""

from typing import Any

from refloat.api import fields, internal, names, quantity
from refloat.api import meta as objects
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import meta, persistentvolume, rules

CLASS_ANNOTATION = persistentvolume.CLASS_ANNOTATION
RESIZE_STATUSES = (
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
)
_SIZE_PATH = "spec.resources.requests.storage"


def validate_create(claim: Object) -> list[FieldError]:
    return _claim(claim, checks_group=True)


def validate_update(new: Object, old: Object) -> list[FieldError]:
    before = old.get("spec") or {}
    sources = (before.get("dataSource") or {}, before.get("dataSourceRef") or {})
    checks_group = all(each.get("apiGroup") is None for each in sources)
    return [
        *meta.validate_update(new["metadata"], old["metadata"]),
        *_claim(new, checks_group=checks_group),
        *_change(new, old),
    ]


def _claim(claim: Object, *, checks_group: bool) -> list[FieldError]:
    mistakes = meta.validate(claim["metadata"], namespaced=True, name_check=names.dns_subdomain)
    return mistakes + _spec(claim.get("spec") or {}, checks_group=checks_group)


def _spec(spec: Object, *, checks_group: bool) -> list[FieldError]:
    modes = persistentvolume.access_modes(spec, "spec", "at least 1 access mode is required")
    missing = 0 if spec.get("accessModes") else 1
    return [
        *modes[:missing],
        *meta.validate_label_selector(spec.get("selector"), "spec.selector"),
        *modes[missing:],
        *_size(spec),
        *persistentvolume.class_name(spec.get("storageClassName") or "", "spec.storageClassName"),
        *persistentvolume.volume_mode(spec.get("volumeMode"), "spec.volumeMode"),
        *_source(spec.get("dataSource"), "spec.dataSource", checks_group=checks_group),
        *_source(spec.get("dataSourceRef"), "spec.dataSourceRef", checks_group=checks_group),
        *_source_namespace(spec.get("dataSourceRef") or {}),
        *_sources_agree(spec),
        *persistentvolume.class_name(
            spec.get("volumeAttributesClassName") or "", "spec.volumeAttributesClassName"
        ),
    ]


def _requests(spec: Object) -> dict[str, str]:
    return (spec.get("resources") or {}).get("requests") or {}


def _size(spec: Object) -> list[FieldError]:
    path, size = "spec.resources[storage]", _requests(spec).get("storage")
    if size is None:
        return [fields.required(path)]
    return rules.positive_quantity(size, path)


def _source(source: Object | None, path: str, *, checks_group: bool) -> list[FieldError]:
    if source is None:
        return []
    kind, group = source.get("kind", ""), source.get("apiGroup") or ""
    mistakes = [fields.required(f"{path}.{key}") for key in ("name", "kind") if not source.get(key)]
    if not group and kind != "PersistentVolumeClaim":
        detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        mistakes.append(fields.invalid(path, kind, detail))
    if group and checks_group:
        mistakes += rules.named(names.dns_subdomain(group), f"{path}.apiGroup", group)
    return mistakes


def _source_namespace(reference: Object) -> list[FieldError]:
    namespace = reference.get("namespace") or ""
    if not namespace:
        return []
    return rules.named(names.dns_label(namespace), "spec.dataSourceRef.namespace", namespace)


def _sources_agree(spec: Object) -> list[FieldError]:
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is None or reference is None:
        return []
    # The value shown is a field path, which has nothing that could be shown.
    if reference.get("namespace"):
        detail = "may not be specified when dataSourceRef.namespace is specified"
        return [fields.invalid("spec", {}, detail)]
    if any(source.get(key) != reference.get(key) for key in ("apiGroup", "kind", "name")):
        return [fields.invalid("spec", {}, "must match dataSourceRef")]
    return []


def _change(new: Object, old: Object) -> list[FieldError]:
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    return [
        *_class_annotation(new, old),
        *_spec_change(new, old),
        *_shrinking(spec, before, old),
        *rules.immutable(spec.get("volumeMode"), before.get("volumeMode"), "volumeMode"),
        *_attributes_class(spec, before, old),
    ]


def _class_from_annotation(new: Object, old: Object) -> bool:
    """Whether the class moves from the old annotation into its field."""
    had, has = (objects.annotations(each).get(CLASS_ANNOTATION) for each in (old, new))
    wanted = new["spec"].get("storageClassName")
    return (
        had is not None
        and old["spec"].get("storageClassName") is None
        and wanted == had
        and has in (None, had)
    )


def _class_annotation(new: Object, old: Object) -> list[FieldError]:
    if _class_from_annotation(new, old):
        return []
    had, has = (objects.annotations(each).get(CLASS_ANNOTATION, "") for each in (old, new))
    return rules.immutable(has, had, f"metadata.annotations.{CLASS_ANNOTATION}")


def _spec_change(new: Object, old: Object) -> list[FieldError]:
    if new["spec"] == old["spec"]:
        return []
    kind = "core.PersistentVolumeClaimSpec"
    spec, before = dict(new["spec"]), dict(old["spec"])
    if not before.get("volumeName"):
        before["volumeName"] = spec.get("volumeName")
    if _may_set_class(new, old):
        spec["storageClassName"] = before.get("storageClassName")
    if (new.get("status") or {}).get("phase") == "Bound":
        _forgive_growth(spec, before)
    if internal.equal(kind, spec, before):
        return []
    detail = (
        "spec is immutable after creation except resources.requests and "
        "volumeAttributesClassName for bound claims\n"
    )
    return [fields.forbidden("spec", detail + internal.diff(kind, before, spec))]


def _may_set_class(new: Object, old: Object) -> bool:
    wanted = new["spec"].get("storageClassName")
    if wanted is None or old["spec"].get("storageClassName") is not None:
        return False
    had = objects.annotations(old).get(CLASS_ANNOTATION)
    return _class_from_annotation(new, old) or had is None or wanted == had


def _forgive_growth(spec: Object, before: Object) -> None:
    spec["volumeAttributesClassName"] = before.get("volumeAttributesClassName")
    requests = _requests(spec)
    if requests:
        size = _requests(before).get("storage")
        spec["resources"] = spec["resources"] | {"requests": requests | {"storage": size}}


def _shrinking(spec: Object, before: Object, old: Object) -> list[FieldError]:
    new_size, old_size = (_amount(_requests(each).get("storage")) for each in (spec, before))
    if new_size >= old_size:
        return []
    capacity = (old.get("status") or {}).get("capacity") or {}
    if new_size > _amount(capacity.get("storage")):
        return []
    return [fields.forbidden(_SIZE_PATH, "field can not be less than status.capacity")]


def _amount(text: str | None) -> Any:
    return quantity.value(text) if text else 0


def _attributes_class(spec: Object, before: Object, old: Object) -> list[FieldError]:
    name = "volumeAttributesClassName"
    current = (old.get("status") or {}).get("currentVolumeAttributesClassName")
    if spec.get(name) == before.get(name) or current is None or spec.get(name):
        return []
    what = "nil" if spec.get(name) is None else "empty string"
    detail = (
        f"update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil"
    )
    return [fields.forbidden(f"spec.{name}", detail)]


def validate_status_update(new: Object, old: Object) -> list[FieldError]:
    status = new.get("status") or {}
    mistakes = meta.validate_update(new["metadata"], old["metadata"])
    if not new["metadata"].get("resourceVersion"):
        mistakes.append(fields.required("resourceVersion"))
    if not (new.get("spec") or {}).get("accessModes"):
        mistakes.append(fields.required("Spec.accessModes"))
    for name, amount in (status.get("capacity") or {}).items():
        mistakes += persistentvolume.basic_quantity(amount, f"status.capacity[{name}]")
    for name, phase in (status.get("allocatedResourceStatuses") or {}).items():
        mistakes += _resize(name, phase)
    for name, amount in (status.get("allocatedResources") or {}).items():
        mistakes += _allocated(name, amount)
    return mistakes


def _resize(name: str, phase: str) -> list[FieldError]:
    path = "status.allocatedResourceStatuses"
    mistakes = _resource_key(name, path)
    if phase not in RESIZE_STATUSES:
        mistakes.append(rules.unsupported(path, name, sorted(RESIZE_STATUSES)))
    return mistakes


def _allocated(name: str, amount: str) -> list[FieldError]:
    path = "status.allocatedResources"
    mistakes = _resource_key(name, path)
    if mistakes:
        return mistakes
    path = f"{path}[{name}]"
    return persistentvolume.basic_quantity(amount, path) or rules.nonnegative_quantity(amount, path)


def _resource_key(name: str, path: str) -> list[FieldError]:
    mistakes = rules.named(names.qualified_name(name), path, name)
    if mistakes:
        return mistakes
    native = "/" not in name or "kubernetes.io/" in name
    if native and name != "storage":
        return [fields.not_supported(path, name, ("storage",))]
    return []


def warnings(claim: Object) -> list[str]:
    """What is accepted but will not work as written."""
    found = []
    if CLASS_ANNOTATION in objects.annotations(claim):
        found.append(
            f"metadata.annotations[{CLASS_ANNOTATION}]: "
            'deprecated since v1.8; use "storageClassName" attribute instead'
        )
    resources = (claim.get("spec") or {}).get("resources") or {}
    for name in ("requests", "limits"):
        size = (resources.get(name) or {}).get("storage")
        if size is not None and quantity.value(size) % 1:
            found.append(
                f"spec.resources.{name}[storage]: fractional byte value "
                f'"{size}" is invalid, must be an integer'
            )
    return found
