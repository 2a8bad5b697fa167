# SPDX-License-Identifier: Apache-2.0
"""The options of a request: from its query, and for a delete also its body."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal

from multidict import MultiMapping

from refloat.api import codec, errors, fields, integers, names, schema, selectors
from refloat.api.fields import FieldError
from refloat.apiserver import deletion
from refloat.apiserver.identity import FieldValidation

MAX_MANAGER_BYTES = 128
MAX_REASON = 1024  # bytes; as a condition's reason

_FALSE = ("0", "false")


def flag(query: Mapping[str, str], name: str) -> bool:
    """A switch in a query: on with any value but `0` and `false`."""
    return name in query and query[name].lower() not in _FALSE


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a create, update or patch."""

    dry_run: bool
    manager: str
    validation: FieldValidation
    force: bool


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The options of a list or watch."""

    labels: str
    fields: str
    given_revision: str
    match: Literal["", "Exact", "NotOlderThan"]
    limit: int
    token: str
    timeout: int | None
    bookmarks: bool
    initial_events: bool | None
    is_watch: bool

    @property
    def revision(self) -> int | None:
        """The requested revision, None for the newest; raises for a malformed one.

        As in Kubernetes, the check of the selected fields comes first.
        """
        if self.token and not self.is_watch and self.given_revision not in ("", "0"):
            message = "specifying resource version is not allowed when using continue"
            raise errors.bad_request(message)
        return list_revision(self.given_revision, watch=self.is_watch)


def write_options(
    query: MultiMapping[str], kind: str, other_mistakes: Iterable[FieldError] = ()
) -> WriteOptions:
    """Read the options of a write; the error names `kind`, and lists `other_mistakes` first."""
    manager = query.get("fieldManager", "")
    mistakes = [*other_mistakes]
    if len(manager.encode()) > MAX_MANAGER_BYTES:
        mistakes.append(fields.too_long("fieldManager", MAX_MANAGER_BYTES))
    unprintable = (index for index, char in enumerate(manager) if not char.isprintable())
    for index in islice(unprintable, errors.MAX_CAUSES):  # an error lists no more
        code, position = ord(manager[index]), len(manager[:index].encode())
        detail = f"invalid character U+{code:04X} (at position {position})"
        mistakes.append(fields.invalid("fieldManager", manager, detail))
    dry_run = _dry_run(query.getall("dryRun", []), mistakes)
    validation = query.get("fieldValidation") or "Warn"
    if validation not in ("Strict", "Warn", "Ignore"):
        supported = ("", "Ignore", "Strict", "Warn")
        mistakes.append(fields.not_supported("fieldValidation", validation, supported))
    _raise_if_any(mistakes, kind)
    return WriteOptions(
        dry_run,
        manager,
        validation,  # type: ignore[arg-type] # checked above
        flag(query, "force"),
    )


def _dry_run(values: list[str], mistakes: list[FieldError]) -> bool:
    if any(value != "All" for value in values):
        mistakes.append(fields.not_supported("dryRun", values, ["All"]))
    return bool(values)


def _raise_if_any(mistakes: list[FieldError], kind: str) -> None:
    if mistakes:
        raise errors.invalid("meta.k8s.io", kind, "", mistakes)


def list_options(query: MultiMapping[str], *, watch: bool) -> ListOptions:
    """Read the options of a list or a watch."""
    timeout = _integer(query.get("timeoutSeconds", ""))
    limit = _integer(query.get("limit", "")) or 0
    labels, selected = query.get("labelSelector", ""), query.get("fieldSelector", "")
    selectors.parse_labels(labels)  # raises for a malformed selector
    selectors.parse_fields(selected)
    revision_text = query.get("resourceVersion", "")
    match: Any = query.get("resourceVersionMatch", "")
    initial = flag(query, "sendInitialEvents") if "sendInitialEvents" in query else None
    token = query.get("continue", "")
    check = _watch_mistakes if watch else _list_mistakes
    _raise_if_any(check(revision_text, match, initial, token), "ListOptions")
    return ListOptions(
        labels=labels,
        fields=selected,
        given_revision=revision_text,
        match=match,
        limit=max(0, limit),
        token=token,
        timeout=timeout,
        bookmarks=flag(query, "allowWatchBookmarks"),
        initial_events=initial,
        is_watch=watch,
    )


def _list_mistakes(revision: str, match: str, initial: bool | None, token: str) -> list[FieldError]:
    where = "resourceVersionMatch"
    mistakes: list[FieldError] = []
    if match and not revision:
        detail = f"{where} is forbidden unless resourceVersion is provided"
        mistakes.append(fields.forbidden(where, detail))
    if match and token:
        mistakes.append(fields.forbidden(where, _WITH_CONTINUE))
    if match not in ("", "Exact", "NotOlderThan"):
        mistakes.append(fields.not_supported(where, match, ["Exact", "NotOlderThan", ""]))
    if match == "Exact" and revision == "0":
        detail = f'{where} "exact" is forbidden for resourceVersion "0"'
        mistakes.append(fields.forbidden(where, detail))
    if initial is not None:
        detail = "sendInitialEvents is forbidden for list"
        mistakes.append(fields.forbidden("sendInitialEvents", detail))
    return mistakes


_WITH_CONTINUE = "resourceVersionMatch is forbidden when continue is provided"


def _watch_mistakes(
    revision: str, match: str, initial: bool | None, token: str
) -> list[FieldError]:
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
    # A watch that begins with the current state counts as one with a match.
    if token and (match or revision in ("", "0")):
        mistakes.append(fields.forbidden(where, _WITH_CONTINUE))
    return mistakes


def list_revision(text: str, *, watch: bool) -> int | None:
    """The requested revision of a read; the error of a watch has other words."""
    if not text:
        return None
    try:
        return integers.unsigned(text)
    except integers.NotInteger as problem:
        mistake = fields.invalid("resourceVersion", text, str(problem))
    if watch:
        raise errors.StatusError(500, "", str(mistake))
    raise errors.bad_request(f"invalid resource version: {mistake}")


def _integer(text: str) -> int | None:
    return integer(text) if text else None


def integer(text: str) -> int:
    """A number in a query; raises 400 with Go's message."""
    try:
        return integers.signed(text)
    except integers.NotInteger as problem:
        raise errors.bad_request(str(problem)) from problem


def delete_options(query: MultiMapping[str], body: bytes, media: codec.Media) -> deletion.Options:
    """The options of a delete, from the body or, without a body, from the query."""
    if body:
        struct = schema.struct("v1", "DeleteOptions")
        return check_delete_options(codec.decode_options(body, struct, media=media).obj)
    texts = ("propagationPolicy", "reason")
    raw: dict[str, Any] = {name: query[name] for name in texts if name in query}
    if (grace := _integer(query.get("gracePeriodSeconds", ""))) is not None:
        raw["gracePeriodSeconds"] = grace
    if "orphanDependents" in query:
        raw["orphanDependents"] = flag(query, "orphanDependents")
    if "dryRun" in query:
        raw["dryRun"] = query.getall("dryRun")
    preconditions = ("uid", "resourceVersion")
    raw["preconditions"] = {name: query[name] for name in preconditions if name in query}
    return check_delete_options(raw)


def check_delete_options(raw: Mapping[str, Any]) -> deletion.Options:
    """Check a DeleteOptions object and read it."""
    mistakes: list[FieldError] = []
    policy = raw.get("propagationPolicy")
    orphan = raw.get("orphanDependents")
    if policy is not None and orphan is not None:
        detail = "orphanDependents and deletionPropagation cannot be both set"
        mistakes.append(fields.invalid("propagationPolicy", policy, detail))
    if policy not in (None, "Foreground", "Background", "Orphan"):
        supported = ("Foreground", "Background", "Orphan", "nil")
        mistakes.append(fields.not_supported("propagationPolicy", policy, supported))
    if names.longer(raw.get("reason", ""), MAX_REASON):
        mistakes.append(fields.too_long("reason", MAX_REASON))
    dry_run = _dry_run(raw.get("dryRun") or [], mistakes)
    _raise_if_any(mistakes, "DeleteOptions")
    if orphan is not None:
        policy = "Orphan" if orphan else "Background"
    preconditions = raw.get("preconditions") or {}
    return deletion.Options(
        grace_seconds=raw.get("gracePeriodSeconds"),
        propagation=policy,
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        reason=raw.get("reason", ""),
        dry_run=dry_run,
        orphans=orphan,
    )


def eviction_options(name: str, raw: Mapping[str, Any], *, dry_run: bool) -> deletion.Options:
    """The delete options in an eviction; `dry_run` is that of the query."""
    where = "ignoreStoreReadErrorWithClusterBreakingPotential"
    if raw.get(where):
        detail = "can not be set for pod eviction, try after removing the option"
        mistake = fields.invalid(f"deleteOptions.{where}", True, detail)
        raise errors.invalid("policy", "Eviction", name, [mistake])
    within = raw.get("dryRun") or []
    if dry_run and within not in ([], ["All"]):
        raise errors.StatusError(
            500,
            "",
            f"Non-matching dry-run options in request and content: [All] and [{' '.join(within)}]",
        )
    evict_options = check_delete_options(raw)
    return replace(evict_options, dry_run=dry_run or evict_options.dry_run)
