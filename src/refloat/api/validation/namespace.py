# SPDX-License-Identifier: Apache-2.0
"""What a Namespace must be; its finalizers and its phase have calls of their own."""

from refloat.api import meta as objects
from refloat.api import names
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import meta
from refloat.api.validation.rules import Errors


def validate_create(namespace: Object) -> list[FieldError]:
    """The rules of a plain update too."""
    errors = meta.validate(namespace["metadata"], namespaced=False, name_check=names.dns_label)
    for name in (namespace.get("spec") or {}).get("finalizers") or ():
        _check_finalizer(name, "spec.finalizers", errors)
    return errors


def validate_update(new: Object, old: Object) -> list[FieldError]:
    errors = meta.validate_common_update(new["metadata"], old["metadata"])
    errors += validate_create(new)
    errors += meta.validate_change(new["metadata"], old["metadata"])
    return errors


def validate_status_update(new: Object, old: Object) -> list[FieldError]:
    errors = meta.validate_update(new["metadata"], old["metadata"])
    phase = (new.get("status") or {}).get("phase", "")
    if objects.is_terminating(new):
        if phase != "Terminating":
            detail = "may only be 'Terminating' if `deletionTimestamp` is not empty"
            errors.invalid("status.Phase", phase, detail)
    elif phase != "Active":
        errors.invalid(
            "status.Phase", phase, "may only be 'Active' if `deletionTimestamp` is empty"
        )
    return errors


def validate_finalize_update(new: Object, old: Object) -> list[FieldError]:
    errors = meta.validate_update(new["metadata"], old["metadata"])
    for i, name in enumerate((new.get("spec") or {}).get("finalizers") or ()):
        _check_finalizer(name, f"spec.finalizers[{i}]", errors)
    return errors


def _check_finalizer(name: str, path: str, errors: Errors) -> None:
    errors.named(path, name, names.qualified_name)
    meta.check_bare_finalizer(name, path, errors)
