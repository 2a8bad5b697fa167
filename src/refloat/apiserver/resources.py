# SPDX-License-Identifier: Apache-2.0
"""The verbs on resources, as HTTP requests ask for them."""

import asyncio
import logging
import ssl
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import aclosing
from dataclasses import replace
from typing import Any, TypeAlias

import msgspec
from aiohttp import web
from multidict import MultiMapping

from refloat.api import errors, schema
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.apiserver import (
    applying,
    binding,
    deletion,
    forms,
    listing,
    long_lists,
    options,
    patching,
    registry,
    selection,
    stored,
    watching,
)
from refloat.apiserver.apply import entries
from refloat.apiserver.eviction import Evictions
from refloat.apiserver.exchange import Exchange
from refloat.apiserver.identity import Aside, Call, Hold, Identity, directly, freely
from refloat.apiserver.logs import Logs
from refloat.apiserver.registry import Registry
from refloat.apiserver.targets import Target
from refloat.base.clock import Clock
from refloat.base.rand import Rand
from refloat.store import errors as store_errors
from refloat.store.contract import Entry
from refloat.store.turns import give_way

log = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[Exchange, Identity, Target], Coroutine[Any, Any, web.StreamResponse]]

_READS = ("get", "list", "watch")

# A watch without a timeout ends by itself after half an hour to an hour, so
# that clients spread themselves anew.
MIN_WATCH_SECONDS = 1800

_NOT_SERVED = {
    "attach": "attach is not served: Refloat's nodes run plain processes; read logs instead",
    "exec": "exec is not served: Refloat's nodes run plain processes; start one on the host",
    "portforward": "port-forward is not served: processes of a pod listen on the host itself",
}


class Resources:
    """Answers the requests that name a resource."""

    def __init__(
        self,
        objects: Registry,
        dispatcher: watching.Dispatcher,
        evictions: Evictions,
        *,
        clock: Clock,
        rand: Rand,
        to_nodes: ssl.SSLContext | None = None,
    ) -> None:
        self._registry = objects
        self._logs = Logs(objects, to_nodes)
        self._dispatcher = dispatcher
        self._evictions = evictions
        self._clock = clock
        self._rand = rand
        self._writes: set[asyncio.Task[web.StreamResponse]] = set()
        self._handlers: dict[str, Handler] = {
            "get": self._get,
            "list": self._list,
            "watch": self._watch,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }

    async def serve(
        self, exchange: Exchange, user: Identity, verb: str, target: Target
    ) -> web.StreamResponse:
        if target.subresource == "log":
            return await self._logs.serve(exchange, target)
        exchange.negotiate(streams=verb in ("list", "watch"))
        if target.subresource in _NOT_SERVED:
            self._registry.get(target.resource, target.namespace, target.name)
            raise errors.not_implemented(_NOT_SERVED[target.subresource])
        try:
            handle = self._handlers[verb]
            if verb in _READS:
                return await handle(exchange, user, target)
            await exchange.receive()
            return await self._unbroken(handle(exchange, user, target))
        except store_errors.WriteFailed as error:
            log.error("a write failed: %s", error)
            raise errors.internal(f"the server cannot write: {error.reason}") from error

    async def _unbroken(self, work: Coroutine[Any, Any, web.StreamResponse]) -> web.StreamResponse:
        """A client that goes away in the middle does not leave a half-done write."""
        task = asyncio.ensure_future(work)
        self._writes.add(task)
        task.add_done_callback(self._written)
        return await asyncio.shield(task)

    def _written(self, task: asyncio.Task[web.StreamResponse]) -> None:
        self._writes.discard(task)
        if not task.cancelled():
            task.exception()  # has been told to the client, unless that is gone

    def _call(
        self, exchange: Exchange, user: Identity, kind: str, found: Iterable[FieldError] = ()
    ) -> Call:
        asked = options.write_options(exchange.query, kind, found)
        return Call(
            user,
            self._clock.now(),
            dry_run=asked.dry_run,
            manager=entries.manager_name(asked.manager, exchange.user_agent),
            force=asked.force,
            validation=asked.validation,
            warnings=exchange.warnings,
            aside=exchange.aside,
            size=exchange.size,
        )

    async def _one(
        self,
        exchange: Exchange,
        target: Target,
        entry: Entry,
        *,
        status: int = 200,
        call: Call | None = None,
    ) -> web.Response:
        form, size = exchange.form, len(entry.value)
        await exchange.reserve(size)
        now = self._clock.now()
        if form == forms.PLAIN:
            body = forms.one(target.resource, entry, form, now)
        else:
            body = await exchange.aside(size, forms.one, target.resource, entry, form, now)
        warnings = call.warnings if call else ()
        return exchange.answer(body, status=status, media=form.media, warnings=warnings)

    # -- reading ---------------------------------------------------------

    async def _get(self, exchange: Exchange, user: Identity, target: Target) -> web.StreamResponse:
        # Kubernetes caches all kinds but events; a cache words its refusals as a watch does.
        is_cached = target.resource.plural != "events"
        given = exchange.query.get("resourceVersion", "")
        asked = options.list_revision(given, watch=is_cached)
        if asked is not None and asked > self._registry.store.revision:
            raise listing.too_large(asked, self._registry.store.revision)
        entry = self._registry.get(target.resource, target.namespace, target.name)
        return await self._one(exchange, target, entry)

    async def _list(self, exchange: Exchange, user: Identity, target: Target) -> web.StreamResponse:
        asked = options.list_options(exchange.query, watch=False)
        found = await listing.plan(self._registry.store, _selection(target, asked), asked)
        return await long_lists.send(exchange, target.resource, found, self._clock.now())

    async def _watch(
        self, exchange: Exchange, user: Identity, target: Target
    ) -> web.StreamResponse:
        lines = self.watch(target, exchange.query, exchange.form, exchange.aside, exchange.hold)
        response = await exchange.stream(forms.JSON)
        async with aclosing(lines):
            async for line in lines:
                await exchange.write(response, line)
        await response.write_eof()
        return response

    def watch(
        self,
        target: Target,
        query: MultiMapping[str],
        form: forms.Form,
        aside: Aside = directly,
        hold: Hold = freely,
    ) -> AsyncGenerator[bytes, None]:
        """The lines of a watch; what is wrong with the question is raised at once."""
        asked = options.list_options(query, watch=True)
        wanted = _selection(target, asked)
        if target.name:  # /api/v1/watch/.../name
            if wanted.pinned("metadata.name") not in ("", target.name):
                message = "fieldSelector metadata.name doesn't match requested name"
                raise errors.bad_request(message)
            wanted = _selection(target, replace(asked, fields=f"metadata.name={target.name}"))
        watcher, initial = self._watcher(wanted, asked, form)
        shaped = aside if form.shape else directly
        return self._lines(watcher, initial, asked.timeout, shaped, hold)

    async def _lines(
        self,
        watcher: watching.Watcher,
        initial: list[Entry] | None,
        timeout: int | None,
        aside: Aside,
        hold: Hold,
    ) -> AsyncGenerator[bytes, None]:
        try:
            if initial is not None and watcher.after > self._registry.store.revision:
                raise listing.too_large(watcher.after, self._registry.store.revision)
            seconds = timeout or self._rand.jitter(MIN_WATCH_SECONDS, 1.0)
            lines = watching.lines(
                watcher,
                initial,
                self._dispatcher,
                self._clock,
                seconds=seconds,
                aside=aside,
                hold=hold,
            )
            async with aclosing(lines):
                async for line in lines:
                    yield line
        except (store_errors.Compacted, errors.StatusError) as error:
            yield _failed(watcher.after, error)
        finally:
            self._dispatcher.shut(watcher)

    def _watcher(
        self, wanted: selection.Selection, asked: options.ListOptions, form: forms.Form
    ) -> tuple[watching.Watcher, list[Entry] | None]:
        """A watcher, and the state that it begins with, if it asked for that."""
        resource, store = wanted.resource, self._registry.store
        initial: list[Entry] | None = None
        after = asked.revision or 0
        forms.check(form)
        shows_state = asked.initial_events if asked.initial_events is not None else not after
        if not after or shows_state:
            after = max(store.revision, after)
        if shows_state:
            initial = listing.candidates(store, wanted)
        headers = form.shape == "Table"

        def encode(event_type: watching.EventType, entry: Entry) -> bytes:
            nonlocal headers
            obj = forms.event_object(resource, entry, form, self._clock.now(), headers=headers)
            if headers:
                headers = False
                watcher.form = key
            return b'{"type":"%s","object":%s}\n' % (event_type.encode(), obj)

        def bookmark(revision: int, initial_end: bool) -> bytes:
            nonlocal headers
            shown, headers = headers, False
            return forms.bookmark(
                resource,
                form,
                revision,
                now=self._clock.now(),
                initial_end=initial_end,
                headers=shown,
            )

        # A Table's first event has the columns too: those who wait for their first share that.
        key = f"{resource.api_version}/{form.key}"
        watcher = watching.Watcher(
            wanted,
            key if form.shape != "Table" else f"{key}/with-headers",
            encode,
            bookmark if asked.bookmarks else None,
            after,
        )
        return watcher, initial

    # -- writing ---------------------------------------------------------

    async def _create(
        self, exchange: Exchange, user: Identity, target: Target
    ) -> web.StreamResponse:
        if target.subresource == "eviction":
            return await self._evict(exchange, user, target)
        if target.subresource == "binding":
            return await self._bind(exchange, user, target)
        call = self._call(exchange, user, "CreateOptions")
        media = exchange.media
        body = await exchange.body()
        obj = await call.run(0, self._registry.decode, call, target.resource, body, media)
        entry = await self._registry.create(call, target.resource, target.namespace, obj)
        return await self._one(exchange, target, entry, status=201, call=call)

    async def _update(
        self, exchange: Exchange, user: Identity, target: Target
    ) -> web.StreamResponse:
        call = self._call(exchange, user, "UpdateOptions")
        media, body = exchange.media, await exchange.body()

        def decode(held: Object | None) -> Object:
            return self._registry.decode(call, target.resource, body, media, held)

        entry, created = await self._registry.replace(
            call,
            target.resource,
            target.namespace,
            target.name,
            decode,
            subresource=target.subresource,
        )
        return await self._one(exchange, target, entry, status=201 if created else 200, call=call)

    async def _patch(
        self, exchange: Exchange, user: Identity, target: Target
    ) -> web.StreamResponse:
        media = exchange.content_type.partition(";")[0].strip()
        is_apply = media == patching.APPLY
        if not is_apply and media not in patching.MEDIA_TYPES:
            raise errors.StatusError(
                415, "UnsupportedMediaType", "415: Unsupported Media Type", details={}
            )
        found = applying.option_mistakes(exchange.query, is_apply=is_apply)
        call = self._call(exchange, user, "PatchOptions", found)
        where = (self._registry, call, target.resource, target.namespace, target.name)
        body, subresource = await exchange.body(), target.subresource
        if is_apply:
            entry, created = await applying.patch(*where, subresource=subresource, body=body)
            status = 201 if created else 200
            return await self._one(exchange, target, entry, status=status, call=call)
        entry = await patching.patch(
            *where,
            subresource=subresource,
            patch_format=patching.MEDIA_TYPES[media],
            body=body,
        )
        return await self._one(exchange, target, entry, call=call)

    # -- deleting --------------------------------------------------------

    async def _delete(
        self, exchange: Exchange, user: Identity, target: Target
    ) -> web.StreamResponse:
        asked = await self._delete_options(exchange)
        call = Call(user, self._clock.now(), dry_run=asked.dry_run, warnings=exchange.warnings)
        entry, gone = await self._registry.delete(
            call, target.resource, target.namespace, target.name, asked
        )
        strategy = self._registry.strategies[target.resource]
        if not gone or strategy.returns_deleted:
            code = 202 if not gone and asked.orphans is False else 200
            return await self._one(exchange, target, entry, status=code, call=call)
        obj = stored.unpack(target.resource, entry)
        body = msgspec.json.encode(_deleted(target, obj))
        return exchange.answer(body, warnings=call.warnings)

    async def _delete_options(self, exchange: Exchange) -> deletion.Options:
        body = await exchange.body()
        media = exchange.media if body else "json"
        return await exchange.aside(len(body), options.delete_options, exchange.query, body, media)

    async def _delete_collection(
        self, exchange: Exchange, user: Identity, target: Target
    ) -> web.StreamResponse:
        asked = options.list_options(exchange.query, watch=options.flag(exchange.query, "watch"))
        selected = _selection(target, asked)
        wanted = await self._delete_options(exchange)
        found = await listing.plan(self._registry.store, selected, asked)
        call = Call(user, self._clock.now(), dry_run=wanted.dry_run, warnings=exchange.warnings)
        self._registry.warn_of_orphans(call, target.resource, wanted)
        for entry in found.entries:
            namespace, _, name = entry.key.partition("/")[2].rpartition("/")
            try:
                await self._registry.delete(call, target.resource, namespace, name, wanted)
            except errors.StatusError as error:
                if error.code != 404:
                    raise
            await give_way()  # a dry run waits for nothing else
        return await long_lists.send(exchange, target.resource, found, self._clock.now())

    # -- the pod's own subresources --------------------------------------

    async def _evict(
        self, exchange: Exchange, user: Identity, target: Target
    ) -> web.StreamResponse:
        call = self._call(exchange, user, "CreateOptions")
        wish = await self._wish(exchange, call, target, "policy/v1", "Eviction")
        asked = options.eviction_options(
            target.name, wish.get("deleteOptions") or {}, dry_run=call.dry_run
        )
        call.dry_run = asked.dry_run
        await self._evictions.evict(call, target.namespace, target.name, asked)
        return exchange.answer(_SUCCESS, status=201, warnings=call.warnings)

    async def _bind(self, exchange: Exchange, user: Identity, target: Target) -> web.StreamResponse:
        call = self._call(exchange, user, "CreateOptions")
        wish = await self._wish(exchange, call, target, "v1", "Binding")
        await binding.bind(self._registry, call, target.namespace, target.name, wish)
        return exchange.answer(_SUCCESS, status=201, warnings=call.warnings)

    async def _wish(
        self, exchange: Exchange, call: Call, target: Target, api_version: str, kind: str
    ) -> Object:
        """The body of a subresource that takes a kind of its own."""
        media = exchange.media
        struct = schema.struct(api_version, kind)
        body = await exchange.body()
        wish = await call.run(0, registry.decode, call, body, struct, media)
        registry.place(target.resource, target.namespace, wish)
        if wish["metadata"].get("name") != target.name:
            raise errors.bad_request(f"name in URL does not match name in {kind} object")
        return wish


_SUCCESS = msgspec.json.encode(
    {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
)


def _selection(target: Target, asked: options.ListOptions) -> selection.Selection:
    return selection.select(
        target.resource, target.namespace, label_text=asked.labels, field_text=asked.fields
    )


def _failed(revision: int, error: store_errors.Compacted | errors.StatusError) -> bytes:
    """The event that tells a watcher why there will be no others."""
    if isinstance(error, store_errors.Compacted):
        error = errors.expired(f"too old resource version: {revision} ({error.compacted})")
    return b'{"type":"ERROR","object":%s}\n' % msgspec.json.encode(error.status())


def _deleted(target: Target, obj: Object) -> Object:
    resource = target.resource
    details = {
        "name": target.name,
        "group": resource.group,
        "kind": resource.plural,
        "uid": obj["metadata"]["uid"],
    }
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {name: value for name, value in details.items() if value},
    }
