# SPDX-License-Identifier: Apache-2.0
"""What an Event must be, in the core group and in events.k8s.io.

Both are one kind in the store and share `_legacy`; the newer group asks for
more. Objects come in the shape of the core group's Event, whichever group
they were sent to; `modern` says that it was events.k8s.io.
"""

from collections.abc import Callable

from refloat.api import fields, names
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import meta, rules

_MAX_SHORT = 128  # bytes of action, reason and reporting instance
_MAX_MESSAGE = 1024
_UNSET = "needs to be unset"
_OTHER_NAMESPACE = "does not match event.namespace"

# Fields that no update through events.k8s.io changes, in the order of the
# complaints, with the unversioned types of those that are structures. The
# reason is checked twice.
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
# Only the core group has this name for it.
_RENAMED = {"reportingComponent": "reportingController"}


def validate_create(event: Object, *, modern: bool = False) -> list[FieldError]:
    if not modern:
        return _legacy(event, modern=False) or meta.validate(
            event["metadata"],
            namespaced=True,
            name_check=names.path_segment,
            known_finalizers=False,
        )
    return [
        *_legacy(event, modern=True),
        *meta.validate(event["metadata"], namespaced=True, name_check=names.dns_subdomain),
        *_series(event.get("series")),
        *_modern(event),
    ]


def validate_update(new: Object, old: Object, *, modern: bool = False) -> list[FieldError]:
    mistakes = meta.validate_common_update(new["metadata"], old["metadata"])
    mistakes += _legacy(new, modern=modern)
    if not modern:
        return mistakes
    mistakes += meta.validate_change(new["metadata"], old["metadata"])
    if new.get("series") != old.get("series"):
        mistakes += _series(new.get("series"))
    for name, kind in _FIXED:
        path = _RENAMED.get(name, name)
        mistakes += rules.immutable(new.get(name), old.get(name), path, kind)
    return mistakes


def _legacy(event: Object, *, modern: bool) -> list[FieldError]:
    timed = bool(event.get("eventTime"))
    mistakes = _involved_namespace(event, timed=timed)
    if timed:
        mistakes += _reporter(event, "reportingController" if modern else "reportingComponent")
        mistakes += _wording(event)
    namespace = event["metadata"].get("namespace", "")
    return mistakes + rules.named(names.dns_subdomain(namespace), "namespace", namespace)


def _involved_namespace(event: Object, *, timed: bool) -> list[FieldError]:
    """Events of things without a namespace live in a few namespaces only."""
    own = event["metadata"].get("namespace", "")
    involved = (event.get("involvedObject") or {}).get("namespace", "")
    if timed:
        good = bool(involved) or own in ("default", "kube-system")
    else:
        good = own == involved if involved else own in ("", "default")
    if good:
        return []
    return [fields.invalid("involvedObject.namespace", involved, _OTHER_NAMESPACE)]


def _reporter(event: Object, path: str) -> list[FieldError]:
    controller = event.get("reportingComponent", "")
    mistakes = [] if controller else [fields.required(path)]
    mistakes += rules.named(names.qualified_name(controller), path, controller)
    return mistakes + _short(event, "reportingInstance")


def _wording(event: Object) -> list[FieldError]:
    mistakes = _short(event, "action") + _short(event, "reason")
    if names.longer(event.get("message", ""), _MAX_MESSAGE):
        detail = f"can have at most {_MAX_MESSAGE} characters"
        mistakes.append(fields.invalid("message", "", detail))
    return mistakes


def _short(event: Object, name: str) -> list[FieldError]:
    text = event.get(name, "")
    if not text:
        return [fields.required(name)]
    if names.longer(text, _MAX_SHORT):
        return [fields.invalid(name, "", f"can have at most {_MAX_SHORT} characters")]
    return []


def _series(series: Object | None) -> list[FieldError]:
    mistakes = []
    if series is not None:
        if series.get("count", 0) < 2:
            mistakes.append(fields.invalid("series.count", "", "should be at least 2"))
        if not series.get("lastObservedTime"):
            mistakes.append(fields.required("series.lastObservedTime"))
    return mistakes


_UNSET_FIELDS: tuple[tuple[str, Callable[[Object], object]], ...] = (
    ("firstTimestamp", lambda event: event.get("firstTimestamp")),
    ("lastTimestamp", lambda event: event.get("lastTimestamp")),
    ("count", lambda event: event.get("count")),
    ("source", lambda event: any((event.get("source") or {}).values())),
)


def _modern(event: Object) -> list[FieldError]:
    mistakes = []
    if not event.get("eventTime"):
        mistakes.append(fields.required("eventTime"))
    kind = event.get("type", "")
    if kind not in ("Normal", "Warning"):
        mistakes.append(fields.invalid("type", "", f"has invalid value: {kind}"))
    for name, is_set in _UNSET_FIELDS:
        if is_set(event):
            mistakes.append(fields.invalid(name, "", _UNSET))
    return mistakes
