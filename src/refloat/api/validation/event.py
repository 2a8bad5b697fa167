# SPDX-License-Identifier: Apache-2.0
"""What an Event must be, in the core group and in events.k8s.io.

The store has one kind for both, and both share `_legacy`; the newer group has more
rules. An object comes in the shape of the core group's Event; `modern` is for
objects that a client sent to events.k8s.io.
"""

from refloat.api import names
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import meta
from refloat.api.validation.rules import Errors

_MAX_SHORT = 128  # bytes of action, reason and reporting instance
_MAX_MESSAGE = 1024

# Fields that no update through events.k8s.io changes, in the order of the errors, with
# their unversioned types. Kubernetes checks the reason twice.
_FIXED: tuple[tuple[str, str], ...] = (
    ("involvedObject", "core.ObjectReference"),
    ("reason", "string"),
    ("message", "string"),
    ("source", "core.EventSource"),
    ("firstTimestamp", "time"),
    ("lastTimestamp", "time"),
    ("count", "number"),
    ("reason", "string"),
    ("type", "string"),
    ("eventTime", "time"),
    ("action", "string"),
    ("related", "*core.ObjectReference"),
    ("reportingComponent", "string"),
    ("reportingInstance", "string"),
)
# Only the core group has this name.
_RENAMED = {"reportingComponent": "reportingController"}


def validate_create(event: Object, *, modern: bool = False) -> list[FieldError]:
    errors = _legacy(event, modern=modern)
    if not modern:
        return errors or meta.validate(
            event["metadata"],
            namespaced=True,
            name_check=names.path_segment,
            known_finalizers=False,
        )
    errors += meta.validate(event["metadata"], namespaced=True, name_check=names.dns_subdomain)
    _check_series(event.get("series"), errors)
    if not event.get("eventTime"):
        errors.required("eventTime")
    if (kind := event.get("type", "")) not in ("Normal", "Warning"):
        errors.invalid("type", "", f"has invalid value: {kind}")
    for name in ("firstTimestamp", "lastTimestamp", "count", "source"):
        value = event.get(name)
        if any(value.values()) if name == "source" and value else value:
            errors.invalid(name, "", "needs to be unset")
    return errors


def validate_update(new: Object, old: Object, *, modern: bool = False) -> list[FieldError]:
    errors = meta.validate_common_update(new["metadata"], old["metadata"])
    errors += _legacy(new, modern=modern)
    if not modern:
        return errors
    errors += meta.validate_change(new["metadata"], old["metadata"])
    if new.get("series") != old.get("series"):
        _check_series(new.get("series"), errors)
    for name, kind in _FIXED:
        errors.immutable(_RENAMED.get(name, name), new.get(name), old.get(name), kind)
    return errors


def _legacy(event: Object, *, modern: bool) -> Errors:
    """The checks of the core group, which come first for both groups."""
    errors = Errors()
    timed = bool(event.get("eventTime"))
    # Events about objects without a namespace live in a few namespaces only.
    namespace = event["metadata"].get("namespace", "")
    involved = (event.get("involvedObject") or {}).get("namespace", "")
    if timed:
        is_good = bool(involved) or namespace in ("default", "kube-system")
    else:
        is_good = namespace == involved if involved else namespace in ("", "default")
    if not is_good:
        errors.invalid("involvedObject.namespace", involved, "does not match event.namespace")
    if timed:
        path = "reportingController" if modern else "reportingComponent"
        controller = event.get("reportingComponent", "")
        if not controller:
            errors.required(path)
        errors.named(path, controller, names.qualified_name)
        for name in ("reportingInstance", "action", "reason"):
            if not event.get(name):
                errors.required(name)
            elif names.longer(event[name], _MAX_SHORT):
                errors.invalid(name, "", f"can have at most {_MAX_SHORT} characters")
        if names.longer(event.get("message", ""), _MAX_MESSAGE):
            errors.invalid("message", "", f"can have at most {_MAX_MESSAGE} characters")
    errors.named("namespace", namespace, names.dns_subdomain)
    return errors


def _check_series(series: Object | None, errors: Errors) -> None:
    if series is not None:
        if series.get("count", 0) < 2:
            errors.invalid("series.count", "", "should be at least 2")
        if not series.get("lastObservedTime"):
            errors.required("series.lastObservedTime")
