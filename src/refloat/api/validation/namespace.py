# SPDX-License-Identifier: Apache-2.0
"""What a Namespace must be; its finalizers and its phase have calls of their own."""

from refloat.api import fields, names
from refloat.api import meta as objects
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import meta, rules


def validate_create(namespace: Object) -> list[FieldError]:
    """Also what a plain update must keep to."""
    mistakes = meta.validate(namespace["metadata"], namespaced=False, name_check=names.dns_label)
    for name in _finalizers(namespace):
        mistakes += _finalizer(name, "spec.finalizers")
    return mistakes


def validate_update(new: Object, old: Object) -> list[FieldError]:
    return [
        *meta.validate_common_update(new["metadata"], old["metadata"]),
        *validate_create(new),
        *meta.validate_change(new["metadata"], old["metadata"]),
    ]


def validate_status_update(new: Object, old: Object) -> list[FieldError]:
    return [
        *meta.validate_update(new["metadata"], old["metadata"]),
        *_phase(new),
    ]


def validate_finalize_update(new: Object, old: Object) -> list[FieldError]:
    mistakes = meta.validate_update(new["metadata"], old["metadata"])
    for i, name in enumerate(_finalizers(new)):
        mistakes += _finalizer(name, f"spec.finalizers[{i}]")
    return mistakes


def _finalizers(namespace: Object) -> list[str]:
    return (namespace.get("spec") or {}).get("finalizers") or []


def _finalizer(name: str, path: str) -> list[FieldError]:
    return rules.named(names.qualified_name(name), path, name) + meta.bare_finalizer(name, path)


def _phase(namespace: Object) -> list[FieldError]:
    phase = (namespace.get("status") or {}).get("phase", "")
    going = objects.is_terminating(namespace)
    if phase == ("Terminating" if going else "Active"):
        return []
    detail = (
        "may only be 'Terminating' if `deletionTimestamp` is not empty"
        if going
        else "may only be 'Active' if `deletionTimestamp` is empty"
    )
    return [fields.invalid("status.Phase", phase, detail)]
