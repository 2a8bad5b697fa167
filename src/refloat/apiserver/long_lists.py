# SPDX-License-Identifier: Apache-2.0
"""The answers to list requests, in pieces so that none holds the loop for long.

A short list is one answer with a length. The server streams a long list: the head,
some items at a time, and the tail, with the layout of a list in one piece.
"""

from datetime import datetime

import msgspec
from aiohttp import web

from refloat.api import kinds
from refloat.apiserver import listing, negotiation
from refloat.apiserver.http_request import Exchange
from refloat.apiserver.negotiation import Form
from refloat.store.contract import Entry
from refloat.store.yielding import give_way

# Items of a piece, which takes a few milliseconds at most. The server joins an object
# from stored bytes, makes a row from a decoded object, and writes YAML in Python.
OBJECTS = 200
ROWS = 50
YAML_ITEMS = 5

# Bytes of a piece: of large objects there are fewer.
PIECE_BYTES = 256 * 1024


async def send(
    exchange: Exchange, resource: kinds.Resource, page: listing.Listing, now: datetime
) -> web.StreamResponse:
    """Answer with a list."""
    form = exchange.form
    size = YAML_ITEMS if form.media == negotiation.YAML else ROWS if form.shape else OBJECTS
    pieces = list(listing.pieces(page.entries, size, PIECE_BYTES))
    if len(pieces) < 2:
        size = sum(len(entry.value) for entry in page.entries)
        await exchange.reserve(size)
        body = await exchange.offload(size, _body, resource, page, form, now)
        return exchange.answer(body, media=form.media, warnings=exchange.warnings)
    largest = max(sum(len(entry.value) for entry in piece) for piece in pieces)
    await exchange.reserve(2 * max(largest, PIECE_BYTES))
    pretty = form.media == negotiation.JSON and exchange.wants_pretty()
    head, tail = negotiation.list_head(resource, form, page.metadata)
    between = b","
    if form.media == negotiation.YAML:
        # An empty list is on the line of its key, other lists are below it.
        whole = negotiation.as_yaml(msgspec.json.decode(head + tail))
        head, _, tail = whole.partition(b": []\n")
        head, between = head + b":\n", b""
    elif pretty:
        head, _, tail = msgspec.json.format(head + tail).rpartition(b"]")
        tail = b"\n  ]" + tail
    else:
        tail += b"\n"
    response = await exchange.stream(form.media)
    for piece in pieces:
        size = sum(len(entry.value) for entry in piece)
        if form == negotiation.PLAIN and not pretty:
            items = _items(resource, piece, form, now, pretty)
        else:
            items = await exchange.offload(size, _items, resource, piece, form, now, pretty)
        await exchange.write(response, head + items)
        await give_way()
        head = between
    await response.write_eof(tail)
    return response


def _body(resource: kinds.Resource, page: listing.Listing, form: Form, now: datetime) -> bytes:
    head, tail = negotiation.list_head(resource, form, page.metadata)
    if page.entries or form.shape != "PartialObjectMetadataList":
        body = head + negotiation.items(resource, page.entries, form, now) + tail
    else:  # only this form has null for an empty list
        body = head[:-1] + b"null" + tail[1:]
    if form.media == negotiation.YAML:
        body = negotiation.as_yaml(msgspec.json.decode(body))
    return body


def _items(
    resource: kinds.Resource, entries: list[Entry], form: Form, now: datetime, pretty: bool
) -> bytes:
    items = negotiation.items(resource, entries, form, now)
    if form.media == negotiation.YAML:
        return negotiation.as_yaml(msgspec.json.decode(b"[" + items + b"]"))
    if pretty:
        # A JSON string has no line breaks, so every line can be indented.
        return msgspec.json.format(b"[" + items + b"]")[1:-2].replace(b"\n", b"\n  ")
    return items
