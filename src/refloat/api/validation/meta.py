# SPDX-License-Identifier: Apache-2.0
"""Whether an object's metadata is valid, and whether it may change so.

Every kind's validation begins here. The caller gives the kind's own rule for
names. The server sets or ignores uid, timestamps and generation before.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from refloat.api import fields, go_internal_types, names
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation.rules import Errors

ANNOTATIONS_LIMIT = 256 * 1024
"""Bytes that the keys and values of all annotations may take together."""

MANAGER_LENGTH = 128
SUBRESOURCE_LENGTH = 256

NO_OPERATOR = "not a valid selector operator"

_NAME_MISSING = "name or generateName is required"
_ORPHAN = "orphan"
_FOREGROUND = "foregroundDeletion"
_BARE_FINALIZERS = ("kubernetes", _ORPHAN, _FOREGROUND)

# In the order in which Kubernetes reports their changes; "" stands for a missing
# text, None for another missing field.
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
) -> Errors:
    """The errors of a new object's metadata, after the server generated the name.

    Most kinds accept only known finalizers without a domain; a few accept any.
    """
    errors = Errors()
    if prefix := metadata.get("generateName", ""):
        errors.each(f"{path}.generateName", prefix, name_check(names.as_prefix(prefix)))
    if name := metadata.get("name", ""):
        errors.named(f"{path}.name", name, name_check)
    else:
        errors.required(f"{path}.name", _NAME_MISSING)
    namespace = metadata.get("namespace", "")
    if namespaced:
        errors.required_name(f"{path}.namespace", namespace, names.dns_label)
    elif namespace:
        errors.forbidden(f"{path}.namespace", "not allowed on this type")
    errors.not_negative(f"{path}.generation", metadata.get("generation", 0))
    _check_contents(metadata, path, errors, metadata.get("finalizers") or ())
    if known_finalizers:
        _check_bare_finalizers(metadata, path, errors)
    return errors


def validate_update(new_meta: Object, old_meta: Object, path: str = "metadata") -> Errors:
    """The errors of a change of metadata.

    Kubernetes checks metadata once for all kinds and once for each kind, and
    lists an error twice. Refloat does the same.
    """
    general = validate_common_update(new_meta, old_meta, path)
    general += validate_change(new_meta, old_meta, path)
    return general


def validate_common_update(new_meta: Object, old_meta: Object, path: str = "metadata") -> Errors:
    """The checks of every update, before the kind's own rules."""
    general = validate(
        new_meta,
        namespaced="namespace" in old_meta,
        name_check=names.path_segment,
        path=path,
        known_finalizers=False,
    )
    general += validate_change(new_meta, old_meta, path, known_finalizers=False)
    return general


def _check_contents(
    metadata: Object, path: str, errors: Errors, finalizers: Sequence[str] = ()
) -> None:
    if labels := metadata.get("labels"):
        errors += validate_labels(labels, f"{path}.labels")
    if annotations := metadata.get("annotations"):
        errors += validate_annotations(annotations, f"{path}.annotations")
    if owners := metadata.get("ownerReferences"):
        _check_owners(owners, f"{path}.ownerReferences", errors)
    for finalizer in finalizers:
        errors.named(f"{path}.finalizers", finalizer, names.qualified_name)
    if _ORPHAN in finalizers and _FOREGROUND in finalizers:
        detail = f"finalizer {_ORPHAN} and {_FOREGROUND} cannot be both set"
        errors.invalid(f"{path}.finalizers", finalizers, detail)
    for i, entry in enumerate(metadata.get("managedFields") or ()):
        where, operation = f"{path}.managedFields[{i}]", entry.get("operation", "")
        if operation not in ("Apply", "Update"):
            value_text = go_internal_types.typed(operation)
            errors.invalid(f"{where}.operation", value_text, "must be `Apply` or `Update`")
        if (form := entry.get("fieldsType", "")) not in ("", "FieldsV1"):
            errors.invalid(f"{where}.fieldsType", form, "must be `FieldsV1`")
        errors += validate_field_manager(entry.get("manager", ""), f"{where}.manager")
        errors.too_long(f"{where}.subresource", entry.get("subresource", ""), SUBRESOURCE_LENGTH)


def validate_labels(labels: Mapping[str, str], path: str) -> Errors:
    """Keys and values of labels, or of a node selector."""
    errors = Errors()
    for key, value in labels.items():
        errors.named(path, key, names.qualified_name)
        errors.named(path, value, names.label_value)
    return errors


def validate_label_key(key: str, path: str) -> list[FieldError]:
    return fields.invalid_each(path, key, names.qualified_name(key))


def validate_annotations(annotations: Mapping[str, str], path: str) -> Errors:
    errors = Errors()
    size = 0
    for key, value in annotations.items():
        errors.each(path, key, names.qualified_name(key.lower()))
        size += _bytes(key) + _bytes(value)
    if size > ANNOTATIONS_LIMIT:
        errors.append(fields.too_long(path, ANNOTATIONS_LIMIT))
    return errors


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def validate_label_selector(selector: Object | None, path: str) -> Errors:
    """A LabelSelector with matchLabels and matchExpressions."""
    errors = Errors()
    if not selector:
        return errors
    errors += validate_labels(selector.get("matchLabels") or {}, f"{path}.matchLabels")
    for i, expression in enumerate(selector.get("matchExpressions") or ()):
        where = f"{path}.matchExpressions[{i}]"
        check_operator(expression, where, errors)
        errors += validate_label_key(expression.get("key", ""), f"{where}.key")
        errors += label_value_errors(expression.get("values") or (), f"{where}.values")
    return errors


def check_operator(
    expression: Object, path: str, errors: Errors, comparisons: Sequence[str] = ()
) -> None:
    """The operator of a selector's expression, with as many values as the operator takes."""
    operator, values = expression.get("operator", ""), expression.get("values") or ()
    if operator in ("In", "NotIn"):
        if not values:
            detail = "must be specified when `operator` is 'In' or 'NotIn'"
            errors.required(f"{path}.values", detail)
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            errors.forbidden(f"{path}.values", detail)
    elif operator not in comparisons:
        errors.invalid(f"{path}.operator", go_internal_types.typed(operator), NO_OPERATOR)
    elif len(values) != 1:
        detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
        errors.required(f"{path}.values", detail)


def label_value_errors(values: Sequence[str], path: str) -> Errors:
    """The values that a selector looks for, each at its index."""
    errors = Errors()
    for i, value in enumerate(values):
        errors.named(f"{path}[{i}]", value, names.label_value)
    return errors


def _check_owners(owners: Sequence[Object], path: str, errors: Errors) -> None:
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
        errors.invalid(path, [_owner_shown(each) for each in owners], detail)


def _check_owner(owner: Object, path: str, errors: Errors) -> None:
    api_version = owner.get("apiVersion", "")
    # A text with more than one slash is no version.
    if api_version.count("/") > 1 or not api_version.rpartition("/")[2]:
        errors.invalid(f"{path}.apiVersion", api_version, "version must not be empty")
    for key in ("kind", "name", "uid"):
        if not owner.get(key):
            errors.invalid(f"{path}.{key}", "", "must not be empty")
    if owner.get("kind") == "Event" and api_version == "v1":
        detail = "/v1, Kind=Event is disallowed from being an owner"
        errors.invalid(path, _owner_shown(owner), detail)


def _owner_shown(owner: Object) -> Object:
    identity = {key: owner.get(key, "") for key in ("apiVersion", "kind", "name", "uid")}
    optional = {key: owner.get(key) for key in ("controller", "blockOwnerDeletion")}
    return identity | {key: value for key, value in optional.items() if value is not None}


def _check_bare_finalizers(metadata: Object, path: str, errors: Errors) -> None:
    for i, name in enumerate(metadata.get("finalizers") or ()):
        check_bare_finalizer(name, f"{path}.finalizers[{i}]", errors)


def check_bare_finalizer(name: str, path: str, errors: Errors) -> None:
    """Only Kubernetes' own finalizers have no domain."""
    if "/" not in name and name not in _BARE_FINALIZERS:
        detail = "name is neither a standard finalizer name nor is it fully qualified"
        errors.invalid(path, name, detail)


def validate_field_manager(manager: str, path: str) -> Errors:
    """A field manager's name, in managedFields or in a request's options."""
    errors = Errors()
    errors.too_long(path, manager, MANAGER_LENGTH)
    if manager.isprintable():
        return errors
    position = 0
    for char in manager:
        if not char.isprintable():
            detail = f"invalid character U+{ord(char):04X} (at position {position})"
            errors.invalid(path, manager, detail)
        position += _bytes(char)
    return errors


def validate_change(
    new: Object, old: Object, path: str = "metadata", *, known_finalizers: bool = True
) -> Errors:
    """The errors of a change of the fields that may not change, or not freely."""
    errors = Errors()
    if old.get("deletionTimestamp") is not None:
        finalizers = old.get("finalizers") or ()
        added = sorted({each for each in new.get("finalizers") or () if each not in finalizers})
        if added:
            quotes = ", ".join(map(fields.quote, added))
            detail = (
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{quotes}}}"
            )
            errors.forbidden(f"{path}.finalizers", detail)
    if not new.get("resourceVersion"):
        errors.invalid(f"{path}.resourceVersion", "", "must be specified for an update")
    if (generation := new.get("generation", 0)) < old.get("generation", 0):
        errors.invalid(f"{path}.generation", generation, "must not be decremented")
    for key, absent in _UNCHANGEABLE:
        errors.immutable(f"{path}.{key}", new.get(key, absent), old.get(key, absent))
    _check_contents(new, path, errors)
    if known_finalizers:
        _check_bare_finalizers(new, path, errors)
    return errors
