# SPDX-License-Identifier: Apache-2.0
"""The options of a request: from its query, and for a delete also its body."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from refloat.api import codec, errors, fields, schema
from refloat.api.fields import FieldError
from refloat.apiserver import deletion
from refloat.apiserver.identity import FieldValidation

MAX_MANAGER_BYTES = 128

_FALSE = ("0", "false")


def flag(query: Mapping[str, str], name: str) -> bool:
    """A switch in a query: on with any value but a plain no."""
    return name in query and query[name].lower() not in _FALSE


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What a create, update or patch asks for besides the object."""

    dry_run: bool
    manager: str
    validation: FieldValidation
    force: bool


@dataclass(frozen=True, slots=True)
class ListOptions:
    """What a list or watch asks for."""

    labels: str
    fields: str
    revision: int | None  # None: the newest
    match: Literal["", "Exact", "NotOlderThan"]
    limit: int
    token: str
    timeout: int | None
    bookmarks: bool
    initial_events: bool | None


def write_options(query: Mapping[str, str], kind: str) -> WriteOptions:
    """Read the options of a write; `kind` names them in an error."""
    mistakes: list[FieldError] = []
    dry_run = _dry_run(query.get("dryRun"), mistakes)
    manager = query.get("fieldManager", "")
    if len(manager.encode()) > MAX_MANAGER_BYTES:
        mistakes.append(fields.too_long("fieldManager", MAX_MANAGER_BYTES))
    if not manager.isprintable():
        detail = "should only contain printable characters"
        mistakes.append(fields.invalid("fieldManager", manager, detail))
    validation = query.get("fieldValidation") or "Warn"
    if validation not in ("Strict", "Warn", "Ignore"):
        supported = ("", "Ignore", "Strict", "Warn")
        mistakes.append(fields.not_supported("fieldValidation", validation, supported))
    _raise(mistakes, kind)
    return WriteOptions(
        dry_run,
        manager,
        validation,  # type: ignore[arg-type] # checked above
        flag(query, "force"),
    )


def _dry_run(value: str | None, mistakes: list[FieldError]) -> bool:
    if value not in (None, "", "All"):
        mistakes.append(fields.not_supported("dryRun", [value], ["All"]))
    return value == "All"


def _raise(mistakes: list[FieldError], kind: str) -> None:
    if mistakes:
        raise errors.invalid("meta.k8s.io", kind, "", mistakes)


def list_options(query: Mapping[str, str], *, watch: bool) -> ListOptions:
    """Read the options of a list or a watch."""
    limit = _integer(query.get("limit", "")) or 0
    timeout = _integer(query.get("timeoutSeconds", ""))
    revision_text = query.get("resourceVersion", "")
    match: Any = query.get("resourceVersionMatch", "")
    initial = flag(query, "sendInitialEvents") if "sendInitialEvents" in query else None
    token = query.get("continue", "")
    mistakes = (
        _watch_mistakes(match, initial, token)
        if watch
        else _list_mistakes(revision_text, match, initial)
    )
    _raise(mistakes, "ListOptions")
    if token and revision_text not in ("", "0"):
        raise errors.bad_request("specifying resource version is not allowed when using continue")
    return ListOptions(
        labels=query.get("labelSelector", ""),
        fields=query.get("fieldSelector", ""),
        revision=list_revision(revision_text, watch=watch),
        match=match,
        limit=max(0, limit),
        token=token,
        timeout=timeout,
        bookmarks=flag(query, "allowWatchBookmarks"),
        initial_events=initial,
    )


def _list_mistakes(revision: str, match: str, initial: bool | None) -> list[FieldError]:
    if initial is not None:
        return [fields.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")]
    if not match:
        return []
    where = "resourceVersionMatch"
    if not revision:
        return [fields.forbidden(where, f"{where} is forbidden unless resourceVersion is provided")]
    if match not in ("Exact", "NotOlderThan"):
        return [fields.not_supported(where, match, ["Exact", "NotOlderThan", ""])]
    if match == "Exact" and revision == "0":
        return [fields.forbidden(where, f'{where} "exact" is forbidden for resourceVersion "0"')]
    return []


def _watch_mistakes(match: str, initial: bool | None, token: str) -> list[FieldError]:
    where = "resourceVersionMatch"
    mistakes: list[FieldError] = []
    if initial is None and match:
        detail = f"{where} is forbidden for watch unless sendInitialEvents is provided"
        mistakes.append(fields.forbidden(where, detail))
    if initial is not None and match != "NotOlderThan":
        detail = f"sendInitialEvents requires setting {where} to NotOlderThan"
        mistakes.append(fields.forbidden(where, detail))
    if match not in ("", "NotOlderThan"):
        mistakes.append(fields.not_supported(where, match, ["NotOlderThan"]))
    if token:
        mistakes.append(fields.forbidden(where, f"{where} is forbidden when continue is provided"))
    return mistakes


def list_revision(text: str, *, watch: bool) -> int | None:
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return int(text)
    mistake = fields.invalid(
        "resourceVersion", text, f'strconv.ParseUint: parsing "{text}": invalid syntax'
    )
    if watch:
        raise errors.StatusError(500, "", str(mistake))
    raise errors.bad_request(f"invalid resource version: {mistake}")


def _integer(text: str) -> int | None:
    if not text:
        return None
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    value = int(text)
    if not -(2**63) <= value < 2**63:
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
    return value


def delete_options(query: Mapping[str, str], body: bytes, media: codec.Media) -> deletion.Options:
    """The options of a delete; a body takes the place of the query."""
    if body:
        given = codec.decode_options(body, schema.struct("v1", "DeleteOptions"), media=media).obj
    else:
        given = _options_of_query(query)
    return check_delete_options(given)


def _options_of_query(query: Mapping[str, str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if (grace := _integer(query.get("gracePeriodSeconds", ""))) is not None:
        given["gracePeriodSeconds"] = grace
    if query.get("orphanDependents"):
        given["orphanDependents"] = flag(query, "orphanDependents")
    for name in ("propagationPolicy", "reason"):
        if query.get(name):
            given[name] = query[name]
    if query.get("dryRun"):
        given["dryRun"] = [query["dryRun"]]
    return given


def check_delete_options(given: Mapping[str, Any]) -> deletion.Options:
    """Check a DeleteOptions object and read it."""
    mistakes: list[FieldError] = []
    policy = given.get("propagationPolicy")
    orphan = given.get("orphanDependents")
    if policy is not None and orphan is not None:
        detail = "orphanDependents and deletionPropagation cannot be both set"
        mistakes.append(fields.invalid("propagationPolicy", policy, detail))
    elif policy not in (None, "Foreground", "Background", "Orphan"):
        supported = ("Foreground", "Background", "Orphan", "nil")
        mistakes.append(fields.not_supported("propagationPolicy", policy, supported))
    dry_run = given.get("dryRun") or []
    if dry_run not in ([], ["All"]):
        mistakes.append(fields.not_supported("dryRun", dry_run, ["All"]))
    _raise(mistakes, "DeleteOptions")
    if orphan is not None:
        policy = "Orphan" if orphan else "Background"
    preconditions = given.get("preconditions") or {}
    return deletion.Options(
        grace_seconds=given.get("gracePeriodSeconds"),
        propagation=policy,
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        reason=given.get("reason", ""),
        dry_run=bool(dry_run),
    )
