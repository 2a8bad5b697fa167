# SPDX-License-Identifier: Apache-2.0
"""What a ConfigMap must be."""

from typing import Any

from refloat.api import fields, names
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import meta, rules

MAX_BYTES = 1024 * 1024  # what fits well into one value of the store
_LOCKED = "field is immutable when `immutable` is set"


def validate_create(config: Object) -> list[FieldError]:
    """Also what an update must keep to."""
    mistakes = meta.validate(config["metadata"], namespaced=True, name_check=names.dns_subdomain)
    data, binary = config.get("data") or {}, config.get("binaryData") or {}
    for key in data:
        path = f"data[{key}]"
        mistakes += rules.named(names.config_map_key(key), path, key)
        if key in binary:
            mistakes.append(fields.invalid(path, key, "duplicate of key present in binaryData"))
    for key in binary:
        mistakes += rules.named(names.config_map_key(key), f"binaryData[{key}]", key)
    if sum(map(_text_size, data.values())) + sum(map(decoded_size, binary.values())) > MAX_BYTES:
        mistakes.append(fields.too_long("[]", MAX_BYTES))  # a path of nothing
    return mistakes


def validate_update(new: Object, old: Object) -> list[FieldError]:
    return [
        *meta.validate_update(new["metadata"], old["metadata"]),
        *locked(new, old, "data", "binaryData"),
        *validate_create(new),
    ]


def locked(new: Object, old: Object, *contents: str) -> list[FieldError]:
    """The contents of an object that once said `immutable: true` stay."""
    if not old.get("immutable"):
        return []
    mistakes = []
    if not new.get("immutable"):
        mistakes.append(fields.forbidden("immutable", _LOCKED))
    changed = [name for name in contents if (new.get(name) or {}) != (old.get(name) or {})]
    return mistakes + [fields.forbidden(name, _LOCKED) for name in changed]


def _text_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def decoded_size(encoded: Any) -> int:
    """How many bytes some base64 holds."""
    text = encoded or ""
    return len(text) * 3 // 4 - text[-2:].count("=")
