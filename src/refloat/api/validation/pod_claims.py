# SPDX-License-Identifier: Apache-2.0
"""Claims that a pod brings along: templates of volume claims, device claims.

A PersistentVolumeClaim of its own is validated by its kind's module.
"""

from refloat.api import fields, internal, names, quantity
from refloat.api.meta import Object
from refloat.api.validation import meta
from refloat.api.validation import pod_rules as rules
from refloat.api.validation.pod_rules import Errors

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_EXCLUSIVE = "ReadWriteOncePod"
_MIRROR = "kubernetes.io/config.mirror"

# The rest of metadata, in the order in which it is reported.
_FORBIDDEN_METADATA = (
    *("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation"),
    *("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"),
    *("ownerReferences", "finalizers", "managedFields"),
)
_SHOWN_METADATA = {"selfLink": "selfLink", "uid": "uID"}


def check_claim_template(template: Object, path: str, errors: Errors) -> None:
    metadata = template.get("metadata") or {}
    where = f"{path}.metadata"
    errors += meta.validate_annotations(metadata.get("annotations") or {}, f"{where}.annotations")
    errors += meta.validate_labels(metadata.get("labels") or {}, f"{where}.labels")
    for key in _FORBIDDEN_METADATA:
        if metadata.get(key):
            named = _SHOWN_METADATA.get(key, key)
            errors.append(fields.forbidden(f"{where}.{named}", "cannot be set"))
    _check_claim_spec(template.get("spec") or {}, f"{path}.spec", errors)


def _check_claim_spec(spec: Object, path: str, errors: Errors) -> None:
    modes = spec.get("accessModes") or []
    if not modes:
        detail = "at least 1 access mode is required"
        errors.append(fields.required(f"{path}.accessModes", detail))
    errors += meta.validate_label_selector(spec.get("selector"), f"{path}.selector")
    _check_access_modes(modes, f"{path}.accessModes", errors)
    _check_storage(spec, f"{path}.resources[storage]", errors)
    for key in ("storageClassName", "volumeAttributesClassName"):
        if key == "volumeAttributesClassName":
            _check_mode_and_sources(spec, path, errors)
        if name := spec.get(key):
            rules.named(errors, f"{path}.{key}", name, names.dns_subdomain)


def _check_access_modes(modes: list[str], path: str, errors: Errors) -> None:
    for mode in modes:
        rules.one_of(errors, path, mode, ACCESS_MODES)
    if _EXCLUSIVE in modes and any(mode in ACCESS_MODES[:3] for mode in modes):
        detail = "may not use ReadWriteOncePod with other access modes"
        errors.append(fields.forbidden(path, detail))


def _check_storage(spec: Object, path: str, errors: Errors) -> None:
    amount = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if amount is None:
        errors.append(fields.required(path))
    elif quantity.value(amount) <= 0:
        errors.append(fields.invalid(path, amount, rules.NOT_POSITIVE))


def _check_mode_and_sources(spec: Object, path: str, errors: Errors) -> None:
    if (mode := spec.get("volumeMode")) is not None:
        rules.one_of(errors, f"{path}.volumeMode", mode, ("Block", "Filesystem"))
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    for key in ("dataSource", "dataSourceRef"):
        if (each := spec.get(key)) is not None:
            _check_data_source(each, f"{path}.{key}", errors)
    if source is None or reference is None:
        return
    detail = ""
    if reference.get("namespace"):
        detail = "may not be specified when dataSourceRef.namespace is specified"
    elif any(source.get(key) != reference.get(key) for key in ("apiGroup", "kind", "name")):
        detail = "must match dataSourceRef"
    if detail:
        errors.append(fields.invalid(path, {}, detail))


def _check_data_source(source: Object, path: str, errors: Errors) -> None:
    rules.required_keys(errors, source, ("name", "kind"), path)
    kind, group = source.get("kind", ""), source.get("apiGroup", "")
    if group:
        rules.named(errors, f"{path}.apiGroup", group, names.dns_subdomain)
    elif kind != "PersistentVolumeClaim":
        detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        errors.append(fields.invalid(path, kind, detail))
    if namespace := source.get("namespace"):
        rules.named(errors, f"{path}.namespace", namespace, names.dns_label)


def check_device_claims(
    claims: list[Object], metadata: Object | None, path: str, errors: Errors
) -> None:
    """Devices that the pod claims; `metadata` is None in a template."""
    if metadata and _MIRROR in (metadata.get("annotations") or {}):
        detail = "static pods do not support resource claims"
        errors += [fields.forbidden("", detail) for _ in claims]
        return
    seen: set[str] = set()
    for i, claim in enumerate(claims):
        _check_device_claim(claim, seen, f"{path}[{i}]", errors)


def _check_device_claim(claim: Object, seen: set[str], path: str, errors: Errors) -> None:
    name = claim.get("name", "")
    if name and not rules.repeated(errors, f"{path}.name", name, seen):
        rules.named(errors, f"{path}.name", name, names.dns_label)
        seen.add(name)
    elif not name:
        errors.append(fields.required(f"{path}.name"))
    given = [
        key
        for key in ("resourceClaimName", "resourceClaimTemplateName")
        if claim.get(key) is not None
    ]
    if len(given) != 1:
        detail = (
            "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            if given
            else "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
        )
        shown = internal.shown("core.PodResourceClaim", claim)
        errors.append(fields.invalid(path, shown, detail))
    for key in given:
        rules.named(errors, f"{path}.{key}", claim[key], names.dns_subdomain)
