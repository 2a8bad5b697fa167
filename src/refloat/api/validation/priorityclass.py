# SPDX-License-Identifier: Apache-2.0
"""What a PriorityClass must be.

The prefix `system-` is for the two classes that every cluster has, and only
these may be above what users may ask for.
"""

from refloat.api import fields, names
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import meta, rules

RESERVED_PREFIX = "system-"
HIGHEST_USER_VALUE = 1_000_000_000
SYSTEM_CLASSES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")


def validate_create(item: Object) -> list[FieldError]:
    return [
        *meta.validate(item["metadata"], namespaced=False, name_check=names.dns_subdomain),
        *_value(item),
        *_preemption(item.get("preemptionPolicy")),
    ]


def validate_update(new: Object, old: Object) -> list[FieldError]:
    mistakes = meta.validate_update(new["metadata"], old["metadata"])
    if new.get("value", 0) != old.get("value", 0):
        mistakes.append(fields.forbidden("value", "may not be changed in an update."))
    policies = new.get("preemptionPolicy"), old.get("preemptionPolicy")
    return mistakes + rules.immutable(*policies, "preemptionPolicy")


def _value(item: Object) -> list[FieldError]:
    name = item["metadata"].get("name", "")
    if name.startswith(RESERVED_PREFIX):
        complaint = _system_class(name, item)
        if not complaint:
            return []
        detail = (
            f"priority class names with '{RESERVED_PREFIX}' prefix are reserved "
            f"for system use only. error: {complaint}"
        )
        return [fields.forbidden("metadata.name", detail)]
    if item.get("value", 0) <= HIGHEST_USER_VALUE:
        return []
    detail = f"maximum allowed value of a user defined priority is {HIGHEST_USER_VALUE}"
    return [fields.forbidden("value", detail)]


def _system_class(name: str, item: Object) -> str:
    if name not in SYSTEM_CLASSES:
        return f"{name} is not a known system priority class"
    if item.get("value", 0) != SYSTEM_CLASSES[name]:
        return f"value of {name} PriorityClass must be {SYSTEM_CLASSES[name]}"
    if item.get("globalDefault"):
        return f"globalDefault of {name} PriorityClass must be false"
    return ""


def _preemption(policy: str | None) -> list[FieldError]:
    if policy is None or policy in PREEMPTION_POLICIES:
        return []
    if not policy:
        return [fields.required("preemptionPolicy")]
    return [rules.unsupported("preemptionPolicy", policy, PREEMPTION_POLICIES)]
