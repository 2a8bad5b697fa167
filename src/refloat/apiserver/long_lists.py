# SPDX-License-Identifier: Apache-2.0
"""Answers that are lists, made in pieces so that none holds the loop for long.

A short list is one answer with its length. A long one is streamed: its head,
its items some at a time, and its tail, each laid out so that together they
are what one piece would have been.
"""

from dataclasses import dataclass
from datetime import datetime

import msgspec
from aiohttp import web

from refloat.api import kinds
from refloat.apiserver import forms, listing
from refloat.apiserver.exchange import Exchange
from refloat.apiserver.forms import Form
from refloat.store.contract import Entry
from refloat.store.turns import give_way

# How many items make a piece. A piece is to take a few milliseconds at most:
# an object is joined from stored bytes, a row is made from decoded ones, and
# YAML is written by an interpreted program.
OBJECTS = 200
ROWS = 50
YAML_ITEMS = 5

# And how many bytes: large objects make a piece of fewer.
PIECE_BYTES = 256 * 1024


async def send(
    exchange: Exchange, resource: kinds.Resource, found: listing.Listing, now: datetime
) -> web.StreamResponse:
    """Answer with a list."""
    form = exchange.form
    pieces = list(listing.pieces(found.entries, _piece_size(form), PIECE_BYTES))
    if len(pieces) < 2:
        return await _whole(exchange, resource, found, now)
    largest = max(sum(len(entry.value) for entry in piece) for piece in pieces)
    await exchange.reserve(2 * max(largest, PIECE_BYTES))
    pretty = form.media == forms.JSON and exchange.wants_pretty()
    layout = _layout(resource, form, found, pretty=pretty)
    response = await exchange.stream(form.media)
    before = layout.head
    for piece in pieces:
        size = sum(len(entry.value) for entry in piece)
        if form == forms.PLAIN and not pretty:
            items = _items(resource, piece, form, now, pretty)
        else:
            items = await exchange.aside(size, _items, resource, piece, form, now, pretty)
        await exchange.write(response, before + items)
        await give_way()
        before = layout.between
    await response.write_eof(layout.tail)
    return response


async def _whole(
    exchange: Exchange, resource: kinds.Resource, found: listing.Listing, now: datetime
) -> web.Response:
    form = exchange.form
    size = sum(len(entry.value) for entry in found.entries)
    await exchange.reserve(size)
    body = await exchange.aside(size, _body, resource, found, form, now)
    return exchange.answer(body, media=form.media, warnings=exchange.warnings)


def _body(resource: kinds.Resource, found: listing.Listing, form: Form, now: datetime) -> bytes:
    head, tail = forms.list_head(resource, form, found.metadata)
    if found.entries or form.shape != "PartialObjectMetadataList":
        body = head + forms.items(resource, found.entries, form, now) + tail
    else:  # this one form has null for nothing
        body = head[:-1] + b"null" + tail[1:]
    if form.media == forms.YAML:
        body = forms.as_yaml(msgspec.json.decode(body))
    return body


def _piece_size(form: Form) -> int:
    if form.media == forms.YAML:
        return YAML_ITEMS
    return ROWS if form.shape else OBJECTS


@dataclass(frozen=True, slots=True)
class _Layout:
    """What stands around the pieces of a list."""

    head: bytes
    between: bytes
    tail: bytes


def _layout(
    resource: kinds.Resource, form: Form, found: listing.Listing, *, pretty: bool
) -> _Layout:
    head, tail = forms.list_head(resource, form, found.metadata)
    if form.media == forms.YAML:
        # An empty list is written within its line, one with items below it.
        whole = forms.as_yaml(msgspec.json.decode(head + tail))
        before, _, after = whole.partition(b": []\n")
        return _Layout(before + b":\n", b"", after)
    if pretty:
        before, _, after = msgspec.json.format(head + tail).rpartition(b"]")
        return _Layout(before, b",", b"\n  ]" + after)
    return _Layout(head, b",", tail + b"\n")


def _items(
    resource: kinds.Resource, entries: list[Entry], form: Form, now: datetime, pretty: bool
) -> bytes:
    items = forms.items(resource, entries, form, now)
    if form.media == forms.YAML:
        return forms.as_yaml(msgspec.json.decode(b"[" + items + b"]"))
    if pretty:
        # No line ends within a string of JSON, so every one can be indented.
        return msgspec.json.format(b"[" + items + b"]")[1:-2].replace(b"\n", b"\n  ")
    return items
