# SPDX-License-Identifier: Apache-2.0
"""Whether an object's metadata is valid, and whether it may change so.

Every kind's validation begins here. Names follow the kind's own rule, which
the caller gives. What the server sets or ignores in metadata before it
validates (uid, timestamps, generation) is not decided here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from refloat.api import fields, internal, names
from refloat.api.fields import FieldError
from refloat.api.meta import Object

ANNOTATIONS_LIMIT = 256 * 1024
"""Bytes that the keys and values of all annotations may take together."""

MANAGER_LENGTH = 128
SUBRESOURCE_LENGTH = 256

IMMUTABLE = "field is immutable"
NEGATIVE = "must be greater than or equal to 0"

_NAME_MISSING = "name or generateName is required"
_ORPHAN = "orphan"
_FOREGROUND = "foregroundDeletion"
_BARE_FINALIZERS = ("kubernetes", _ORPHAN, _FOREGROUND)
_IN_OR_NOT_IN = "must be specified when `operator` is 'In' or 'NotIn'"
_EXISTS_OR_NOT = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"

# In the order in which their changes are reported; "" and 0 stand for fields
# that are plain text or numbers, None for those that can be absent.
_UNCHANGEABLE: tuple[tuple[str, Any], ...] = (
    ("name", ""),
    ("namespace", ""),
    ("uid", ""),
    ("creationTimestamp", None),
    ("deletionTimestamp", None),
    ("deletionGracePeriodSeconds", None),
)


def validate(
    metadata: Object,
    *,
    namespaced: bool,
    name_check: names.Check,
    path: str = "metadata",
    known_finalizers: bool = True,
) -> list[FieldError]:
    """What is wrong with the metadata of a new object, its name made already.

    Most kinds know the finalizers without a domain; a few take any.
    """
    errors: list[FieldError] = []
    _check_names(metadata, name_check, path, errors)
    _check_namespace(metadata.get("namespace", ""), namespaced, path, errors)
    if (generation := metadata.get("generation", 0)) < 0:
        errors.append(fields.invalid(f"{path}.generation", generation, NEGATIVE))
    if labels := metadata.get("labels"):
        errors += validate_labels(labels, f"{path}.labels")
    if annotations := metadata.get("annotations"):
        errors += validate_annotations(annotations, f"{path}.annotations")
    if owners := metadata.get("ownerReferences"):
        errors += _owner_errors(owners, f"{path}.ownerReferences")
    if finalizers := metadata.get("finalizers"):
        errors += _finalizer_errors(finalizers, f"{path}.finalizers")
    if managed := metadata.get("managedFields"):
        errors += _managed_fields_errors(managed, f"{path}.managedFields")
    if known_finalizers:
        errors += _bare_finalizer_errors(metadata, path)
    return errors


def validate_update(new_meta: Object, old_meta: Object, path: str = "metadata") -> list[FieldError]:
    """What is wrong with a change of metadata.

    Kubernetes checks it twice, once for all kinds and once for each kind, and
    lists the mistakes twice; so does this.
    """
    general = validate_common_update(new_meta, old_meta, path)
    return general + validate_change(new_meta, old_meta, path)


def validate_common_update(
    new_meta: Object, old_meta: Object, path: str = "metadata"
) -> list[FieldError]:
    """What is checked in every update, before the kind's own rules."""
    general = validate(
        new_meta,
        namespaced="namespace" in old_meta,
        name_check=names.path_segment,
        path=path,
        known_finalizers=False,
    )
    return general + validate_change(new_meta, old_meta, path, known_finalizers=False)


def _check_names(metadata: Object, check: names.Check, path: str, errors: list[FieldError]) -> None:
    if prefix := metadata.get("generateName", ""):
        complaints = check(names.as_prefix(prefix))
        errors += fields.invalid_each(f"{path}.generateName", prefix, complaints)
    name = metadata.get("name", "")
    if name:
        errors += fields.invalid_each(f"{path}.name", name, check(name))
    else:
        errors.append(fields.required(f"{path}.name", _NAME_MISSING))


def _check_namespace(namespace: str, namespaced: bool, path: str, errors: list[FieldError]) -> None:
    if not namespaced:
        if namespace:
            errors.append(fields.forbidden(f"{path}.namespace", "not allowed on this type"))
    elif not namespace:
        errors.append(fields.required(f"{path}.namespace"))
    else:
        complaints = names.dns_label(namespace)
        errors += fields.invalid_each(f"{path}.namespace", namespace, complaints)


def validate_labels(labels: Mapping[str, str], path: str) -> list[FieldError]:
    """Keys and values of labels, or of a node selector."""
    errors: list[FieldError] = []
    for key, value in labels.items():
        if complaints := names.qualified_name(key):
            errors += fields.invalid_each(path, key, complaints)
        if complaints := names.label_value(value):
            errors += fields.invalid_each(path, value, complaints)
    return errors


def validate_label_key(key: str, path: str) -> list[FieldError]:
    return fields.invalid_each(path, key, names.qualified_name(key))


def validate_annotations(annotations: Mapping[str, str], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    size = 0
    for key, value in annotations.items():
        errors += fields.invalid_each(path, key, names.qualified_name(key.lower()))
        size += _bytes(key) + _bytes(value)
    if size > ANNOTATIONS_LIMIT:
        errors.append(fields.too_long(path, ANNOTATIONS_LIMIT))
    return errors


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def validate_label_selector(selector: Object | None, path: str) -> list[FieldError]:
    """A LabelSelector with its matchLabels and matchExpressions."""
    if not selector:
        return []
    errors = validate_labels(selector.get("matchLabels") or {}, f"{path}.matchLabels")
    for i, expression in enumerate(selector.get("matchExpressions") or ()):
        errors += _expression_errors(expression, f"{path}.matchExpressions[{i}]")
    return errors


def _expression_errors(expression: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    operator = expression.get("operator", "")
    values = expression.get("values") or ()
    if operator in ("In", "NotIn"):
        if not values:
            errors.append(fields.required(f"{path}.values", _IN_OR_NOT_IN))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            errors.append(fields.forbidden(f"{path}.values", _EXISTS_OR_NOT))
    else:
        shown = internal.typed(operator)
        errors.append(fields.invalid(f"{path}.operator", shown, "not a valid selector operator"))
    errors += validate_label_key(expression.get("key", ""), f"{path}.key")
    errors += label_value_errors(values, f"{path}.values")
    return errors


def label_value_errors(values: Sequence[str], path: str) -> list[FieldError]:
    """The values that a selector looks for, each at its index."""
    return [
        fields.invalid(f"{path}[{i}]", value, complaint)
        for i, value in enumerate(values)
        for complaint in names.label_value(value)
    ]


def _owner_errors(owners: Sequence[Object], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    controller = ""
    for owner in owners:
        _check_owner(owner, path, errors)
        if not owner.get("controller"):
            continue
        current = f"{owner.get('kind', '')}/{owner.get('name', '')}"
        if not controller:
            controller = current
            continue
        detail = (
            "Only one reference can have Controller set to true. "
            f'Found "true" in references for {controller} and {current}'
        )
        errors.append(fields.invalid(path, [_owner_shown(each) for each in owners], detail))
    return errors


def _check_owner(owner: Object, path: str, errors: list[FieldError]) -> None:
    api_version = owner.get("apiVersion", "")
    if not _version_of(api_version):
        errors.append(
            fields.invalid(f"{path}.apiVersion", api_version, "version must not be empty")
        )
    missing = [key for key in ("kind", "name", "uid") if not owner.get(key)]
    errors += [fields.invalid(f"{path}.{key}", "", "must not be empty") for key in missing]
    if owner.get("kind") == "Event" and api_version == "v1":
        detail = "/v1, Kind=Event is disallowed from being an owner"
        errors.append(fields.invalid(path, _owner_shown(owner), detail))


def _version_of(api_version: str) -> str:
    """The part after the slash; more than one slash is no version at all."""
    return "" if api_version.count("/") > 1 else api_version.rpartition("/")[2]


def _owner_shown(owner: Object) -> Object:
    shown = {key: owner.get(key, "") for key in ("apiVersion", "kind", "name", "uid")}
    optional = {key: owner.get(key) for key in ("controller", "blockOwnerDeletion")}
    return shown | {key: value for key, value in optional.items() if value is not None}


def _finalizer_errors(finalizers: Sequence[str], path: str) -> list[FieldError]:
    errors = [
        fields.invalid(path, finalizer, complaint)
        for finalizer in finalizers
        for complaint in names.qualified_name(finalizer)
    ]
    if _ORPHAN in finalizers and _FOREGROUND in finalizers:
        detail = f"finalizer {_ORPHAN} and {_FOREGROUND} cannot be both set"
        errors.append(fields.invalid(path, finalizers, detail))
    return errors


def _bare_finalizer_errors(metadata: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for i, name in enumerate(metadata.get("finalizers") or ()):
        errors += bare_finalizer(name, f"{path}.finalizers[{i}]")
    return errors


def bare_finalizer(name: str, path: str) -> list[FieldError]:
    """Only Kubernetes' own finalizers are without a domain."""
    if "/" in name or name in _BARE_FINALIZERS:
        return []
    detail = "name is neither a standard finalizer name nor is it fully qualified"
    return [fields.invalid(path, name, detail)]


def _managed_fields_errors(managed: Sequence[Object], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for i, entry in enumerate(managed):
        _check_manager(entry, f"{path}[{i}]", errors)
    return errors


def _check_manager(entry: Object, path: str, errors: list[FieldError]) -> None:
    operation = entry.get("operation", "")
    if operation not in ("Apply", "Update"):
        shown = internal.typed(operation)
        errors.append(fields.invalid(f"{path}.operation", shown, "must be `Apply` or `Update`"))
    if (form := entry.get("fieldsType", "")) not in ("", "FieldsV1"):
        errors.append(fields.invalid(f"{path}.fieldsType", form, "must be `FieldsV1`"))
    errors += validate_field_manager(entry.get("manager", ""), f"{path}.manager")
    if names.longer(entry.get("subresource", ""), SUBRESOURCE_LENGTH):
        errors.append(fields.too_long(f"{path}.subresource", SUBRESOURCE_LENGTH))


def validate_field_manager(manager: str, path: str) -> list[FieldError]:
    """A field manager's name, in managedFields or in a request's options."""
    errors: list[FieldError] = []
    if names.longer(manager, MANAGER_LENGTH):
        errors.append(fields.too_long(path, MANAGER_LENGTH))
    if manager.isprintable():
        return errors
    position = 0
    for char in manager:
        if not char.isprintable():
            detail = f"invalid character U+{ord(char):04X} (at position {position})"
            errors.append(fields.invalid(path, manager, detail))
        position += _bytes(char)
    return errors


def validate_change(
    new: Object, old: Object, path: str = "metadata", *, known_finalizers: bool = True
) -> list[FieldError]:
    """What of the metadata may not change so."""
    errors: list[FieldError] = []
    if old.get("deletionTimestamp") is not None:
        _check_finalizers_added(new, old, path, errors)
    if not new.get("resourceVersion"):
        detail = "must be specified for an update"
        errors.append(fields.invalid(f"{path}.resourceVersion", "", detail))
    if (generation := new.get("generation", 0)) < old.get("generation", 0):
        errors.append(fields.invalid(f"{path}.generation", generation, "must not be decremented"))
    for key, absent in _UNCHANGEABLE:
        if (value := new.get(key, absent)) != old.get(key, absent):
            errors.append(fields.invalid(f"{path}.{key}", value, IMMUTABLE))
    errors += _content_errors(new, path)
    return errors + _bare_finalizer_errors(new, path) if known_finalizers else errors


def _check_finalizers_added(new: Object, old: Object, path: str, errors: list[FieldError]) -> None:
    known = old.get("finalizers") or ()
    added = sorted({each for each in new.get("finalizers") or () if each not in known})
    if added:
        listed = ", ".join(map(fields.quote, added))
        detail = (
            "no new finalizers can be added if the object is being deleted, "
            f"found new finalizers []string{{{listed}}}"
        )
        errors.append(fields.forbidden(f"{path}.finalizers", detail))


def _content_errors(metadata: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if labels := metadata.get("labels"):
        errors += validate_labels(labels, f"{path}.labels")
    if annotations := metadata.get("annotations"):
        errors += validate_annotations(annotations, f"{path}.annotations")
    if owners := metadata.get("ownerReferences"):
        errors += _owner_errors(owners, f"{path}.ownerReferences")
    if managed := metadata.get("managedFields"):
        errors += _managed_fields_errors(managed, f"{path}.managedFields")
    return errors


def immutable(new: Any, old: Any, path: str) -> list[FieldError]:
    """A complaint when a field that must never change did."""
    return [] if new == old else [fields.invalid(path, new, IMMUTABLE)]
