# SPDX-License-Identifier: Apache-2.0
"""What a ConfigMap must be."""

from collections.abc import Sequence
from typing import Any

from refloat.api import fields, names
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import meta
from refloat.api.validation.rules import Errors

MAX_BYTES = 1024 * 1024  # what fits well into one value of the store
_LOCKED = "field is immutable when `immutable` is set"


def validate_create(config: Object) -> list[FieldError]:
    """The rules of an update too."""
    errors = meta.validate(config["metadata"], namespaced=True, name_check=names.dns_subdomain)
    data, binary = config.get("data") or {}, config.get("binaryData") or {}
    for key in data:
        errors.named(f"data[{key}]", key, names.config_map_key)
        if key in binary:
            errors.invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
    for key in binary:
        errors.named(f"binaryData[{key}]", key, names.config_map_key)
    texts = sum(len(each) if each.isascii() else len(each.encode()) for each in data.values())
    if texts + sum(map(decoded_size, binary.values())) > MAX_BYTES:
        errors.append(fields.too_long("[]", MAX_BYTES))  # Kubernetes' path is empty
    return errors


def validate_update(new: Object, old: Object) -> list[FieldError]:
    errors = meta.validate_update(new["metadata"], old["metadata"])
    check_locked(new, old, ("data", "binaryData"), errors)
    return [*errors, *validate_create(new)]


def check_locked(new: Object, old: Object, contents: Sequence[str], errors: Errors) -> None:
    """The contents of an object with `immutable: true` stay."""
    if old.get("immutable"):
        if not new.get("immutable"):
            errors.forbidden("immutable", _LOCKED)
        for name in contents:
            if (new.get(name) or {}) != (old.get(name) or {}):
                errors.forbidden(name, _LOCKED)


def decoded_size(encoded: Any) -> int:
    """The number of bytes in some base64."""
    text = encoded or ""
    return len(text) * 3 // 4 - text[-2:].count("=")
