# SPDX-License-Identifier: Apache-2.0
"""Lists: the revision, the page and the entries of an answer."""

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from refloat.api import errors, gojson
from refloat.apiserver import storage_codec
from refloat.apiserver.options import ListOptions
from refloat.apiserver.selection import Selection
from refloat.store import errors as store_errors
from refloat.store.contract import Entry, Store
from refloat.store.yielding import give_way

# Entries that a selector examines in one turn of the loop.
SEARCHED = 500

# Characters of a token; the longest name in the longest namespace takes some 500.
MAX_TOKEN = 4096
_ILLEGAL = re.compile(r"[^A-Za-z0-9_\r\n-]")
_NO_NEWLINES = str.maketrans("", "", "\r\n")

_TOKEN_VERSION = "meta.k8s.io/v1"  # noqa: S105 - no secret

REVISION_TOO_OLD = "The resourceVersion for the provided list is too old."
LIST_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can "
    "start a new list without the continue parameter, or use the continue token in this response "
    "to retrieve the remainder of the results. Continuing with the provided token results in an "
    "inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class Token:
    """Where a chunked list continues, and at which revision."""

    revision: int  # -1: whatever is newest
    after: str  # the last key, without its collection's prefix

    def encode(self) -> str:
        fields = {"v": _TOKEN_VERSION, "rv": self.revision, "start": self.after + "\0"}
        return base64.urlsafe_b64encode(msgspec.json.encode(fields)).decode().rstrip("=")


class _TokenFields(msgspec.Struct):
    v: str = ""
    rv: int = 0
    start: str = ""


def decode_token(text: str) -> Token:
    """Read a continue token; raises 400 in Kubernetes' words."""
    if len(text) > MAX_TOKEN:
        raise _invalid_token("it is too long")
    if illegal := _ILLEGAL.search(text):
        raise _invalid_token(f"illegal base64 data at input byte {illegal.start()}")
    digits = text.translate(_NO_NEWLINES)  # newlines do not count, and there is no padding
    if len(digits) % 4 == 1:
        raise _invalid_token(f"illegal base64 data at input byte {len(digits) - 1}")
    raw = base64.urlsafe_b64decode(digits + "=" * (-len(digits) % 4))
    try:
        fields = msgspec.json.decode(raw, type=_TokenFields)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        why = str(error)
        try:
            gojson.parse(raw)
        except gojson.SyntaxProblem as problem:
            why = str(problem)  # Go's message for a token that is not JSON
        raise _invalid_token(why) from error
    if fields.v != _TOKEN_VERSION:
        raise _invalid_token(f"server does not recognize this encoded version {fields.v}")
    if fields.rv == 0:
        raise _invalid_token(f"incorrect encoded start resourceVersion (version {fields.v})")
    if not fields.start:
        raise _invalid_token(f"encoded start key empty (version {fields.v})")
    if "/../" in f"/{fields.start}/":
        raise _invalid_token(fields.start)
    return Token(max(-1, fields.rv), fields.start.removesuffix("\0"))


def _invalid_token(why: str) -> errors.StatusError:
    return errors.bad_request(f"invalid continue token: continue key is not valid: {why}")


@dataclass(frozen=True, slots=True)
class Listing:
    """The entries of a list, and the list's metadata."""

    entries: list[Entry]
    metadata: dict[str, Any]


async def plan(store: Store, selection: Selection, options: ListOptions) -> Listing:
    """Find the entries of a list, in pieces that do not hold the loop."""
    requested = options.revision or 0
    token = decode_token(options.token) if options.token else None
    revision = _revision(store, options, requested, token)
    prefix = storage_codec.prefix(selection.resource, selection.namespace)
    after = prefix + token.after if token else ""
    try:
        entries, more, remaining, as_of = await _collect(
            store, selection, prefix, after, revision, options
        )
    except store_errors.Compacted as error:
        raise _expired(token) from error
    except store_errors.FutureRevision as error:
        raise too_large(revision or 0, store.revision) from error
    metadata: dict[str, Any] = {"resourceVersion": str(as_of)}
    if more:
        last = entries[-1].key.removeprefix(prefix)
        metadata["continue"] = Token(as_of, last).encode()
        if selection.everything:
            metadata["remainingItemCount"] = remaining
    return Listing(entries, metadata)


def _revision(
    store: Store, options: ListOptions, requested: int, token: Token | None
) -> int | None:
    """The revision to list at; None for the newest."""
    if token is not None:
        return None if token.revision == -1 else token.revision
    if requested > store.revision:
        raise too_large(requested, store.revision)
    exact = options.match == "Exact" or (not options.match and options.limit > 0)
    return requested if requested and exact else None


async def _collect(
    store: Store,
    selection: Selection,
    prefix: str,
    after: str,
    revision: int | None,
    options: ListOptions,
) -> tuple[list[Entry], bool, int, int]:
    # Any version and a single object have no limit.
    unlimited = options.revision == 0 or selection.pinned("metadata.name")
    limit = 0 if unlimited else options.limit
    if revision is None and not after and selection.key:
        alone = await _matching(selection, candidates(store, selection))
        return alone, False, 0, store.revision
    if selection.everything or not limit:
        page = store.page(prefix, revision=revision, after=after, limit=limit)
        entries = page.entries
        if not selection.everything:
            entries = await _matching(selection, page.entries)
        return entries, page.more, page.remaining, page.revision
    matches: list[Entry] = []
    while True:
        page = store.page(prefix, revision=revision, after=after, limit=SEARCHED)
        for entry in page.entries:
            if len(matches) == limit:  # there may be more
                return matches, True, 0, page.revision
            if selection.matches(entry):
                matches.append(entry)
        if not page.more or len(matches) == limit:
            return matches, page.more, 0, page.revision
        revision, after = page.revision, page.entries[-1].key
        await give_way()


def candidates(store: Store, selection: Selection) -> list[Entry]:
    """The newest entries that a selection may match; the caller checks each."""
    if key := selection.key:
        entry = store.get(key)
        return [] if entry is None else [entry]
    return store.page(storage_codec.prefix(selection.resource, selection.namespace)).entries


async def _matching(selection: Selection, entries: list[Entry]) -> list[Entry]:
    matches: list[Entry] = []
    for piece in pieces(entries, SEARCHED):
        if len(entries) > SEARCHED:
            await give_way()
        matches += [entry for entry in piece if selection.matches(entry)]
    return matches


def _expired(token: Token | None) -> errors.StatusError:
    if token is None:
        return errors.expired(REVISION_TOO_OLD)
    error = errors.expired(LIST_TOO_OLD)
    error.metadata = {"continue": Token(-1, token.after).encode()}
    return error


def too_large(requested: int, current: int) -> errors.StatusError:
    """The error for a revision that does not exist yet."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return errors.StatusError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {requested}, current: {current}",
        details={"causes": [cause], "retryAfterSeconds": 1},
    )


def pieces(entries: list[Entry], size: int, most_bytes: int = 0) -> Iterator[list[Entry]]:
    """The entries in pieces of so many, or of so many bytes, so that none holds the loop."""
    for start in range(0, len(entries), size):
        piece = entries[start : start + size]
        if most_bytes:
            yield from _within(piece, most_bytes)
        else:
            yield piece


def _within(entries: list[Entry], most_bytes: int) -> Iterator[list[Entry]]:
    total = sum(len(entry.value) for entry in entries)
    if total <= most_bytes:
        yield entries
        return
    piece: list[Entry] = []
    size = 0
    for entry in entries:
        size += len(entry.value)
        if piece and size > most_bytes:
            yield piece
            piece, size = [], len(entry.value)
        piece.append(entry)
    yield piece
