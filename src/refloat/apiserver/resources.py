# SPDX-License-Identifier: Apache-2.0
"""The verbs on resources, for HTTP requests."""

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
    apply_verb,
    binding,
    deletion,
    listing,
    long_lists,
    negotiation,
    options,
    patch_verb,
    registry,
    selection,
    storage_codec,
    watch_index,
)
from refloat.apiserver.apply import managed_fields
from refloat.apiserver.eviction import PodEvictions
from refloat.apiserver.http_request import Exchange
from refloat.apiserver.identity import Call, Hold, Identity, Offload, hold_nothing, run_inline
from refloat.apiserver.logs import Logs
from refloat.apiserver.registry import Registry
from refloat.apiserver.routes import Target
from refloat.base.clock import Clock
from refloat.base.rand import Rand
from refloat.store import errors as store_errors
from refloat.store.contract import Entry
from refloat.store.yielding import give_way

log = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[Exchange, Identity, Target], Coroutine[Any, Any, web.StreamResponse]]

_READS = ("get", "list", "watch")

# The server ends a watch without a timeout after half an hour to an hour, so that
# the load of clients spreads anew.
MIN_WATCH_SECONDS = 1800

_NOT_SERVED = {
    "attach": "attach is not served: Refloat's nodes run plain processes; read logs instead",
    "exec": "exec is not served: Refloat's nodes run plain processes; start one on the host",
    "portforward": "port-forward is not served: processes of a pod listen on the host itself",
}


class ResourceHandlers:
    """Answers the requests that name a resource."""

    def __init__(
        self,
        objects: Registry,
        dispatcher: watch_index.Dispatcher,
        evictions: PodEvictions,
        *,
        clock: Clock,
        rand: Rand,
        to_nodes: ssl.SSLContext | None = None,
    ) -> None:
        self._registry = objects
        self._logs = Logs(objects, to_nodes, clock)
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

            def finish(task: asyncio.Task[web.StreamResponse]) -> None:
                self._writes.discard(task)
                if not task.cancelled():
                    task.exception()  # the client has the error, unless it disconnected

            # A client that disconnects does not leave a half-done write.
            task = asyncio.ensure_future(handle(exchange, user, target))
            self._writes.add(task)
            task.add_done_callback(finish)
            return await asyncio.shield(task)
        except store_errors.WriteFailed as error:
            log.error("a write failed: %s", error)
            raise errors.internal(f"the server cannot write: {error.reason}") from error

    def _call(
        self, exchange: Exchange, user: Identity, kind: str, mistakes: Iterable[FieldError] = ()
    ) -> Call:
        write_options = options.write_options(exchange.query, kind, mistakes)
        return Call(
            user,
            self._clock.now(),
            dry_run=write_options.dry_run,
            manager=managed_fields.manager_name(write_options.manager, exchange.user_agent),
            force=write_options.force,
            validation=write_options.validation,
            warnings=exchange.warnings,
            offload=exchange.offload,
            size=exchange.size,
        )

    async def _answer_entry(
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
        if form == negotiation.PLAIN:
            body = negotiation.encode_entry(target.resource, entry, form, now)
        else:
            body = await exchange.offload(
                size, negotiation.encode_entry, target.resource, entry, form, now
            )
        warnings = call.warnings if call else ()
        return exchange.answer(body, status=status, media=form.media, warnings=warnings)

    # -- reading ---------------------------------------------------------

    async def _get(self, exchange: Exchange, user: Identity, target: Target) -> web.StreamResponse:
        # Kubernetes caches all kinds but events; the errors of a cache are those of a watch.
        is_cached = target.resource.plural != "events"
        text = exchange.query.get("resourceVersion", "")
        revision = options.list_revision(text, watch=is_cached)
        if revision is not None and revision > self._registry.store.revision:
            raise listing.too_large(revision, self._registry.store.revision)
        entry = self._registry.get(target.resource, target.namespace, target.name)
        return await self._answer_entry(exchange, target, entry)

    async def _list(self, exchange: Exchange, user: Identity, target: Target) -> web.StreamResponse:
        list_options = options.list_options(exchange.query, watch=False)
        page = await listing.plan(
            self._registry.store, _selection(target, list_options), list_options
        )
        return await long_lists.send(exchange, target.resource, page, self._clock.now())

    async def _watch(
        self, exchange: Exchange, user: Identity, target: Target
    ) -> web.StreamResponse:
        lines = self.watch(target, exchange.query, exchange.form, exchange.offload, exchange.hold)
        response = await exchange.stream(negotiation.JSON)
        async with aclosing(lines):
            async for line in lines:
                await exchange.write(response, line)
        await response.write_eof()
        return response

    def watch(
        self,
        target: Target,
        query: MultiMapping[str],
        form: negotiation.Form,
        offload: Offload = run_inline,
        hold: Hold = hold_nothing,
    ) -> AsyncGenerator[bytes, None]:
        """The lines of a watch; raises errors of the request at once."""
        list_options = options.list_options(query, watch=True)
        scope = _selection(target, list_options)
        if target.name:  # /api/v1/watch/.../name
            if scope.pinned("metadata.name") not in ("", target.name):
                message = "fieldSelector metadata.name doesn't match requested name"
                raise errors.bad_request(message)
            scope = _selection(target, replace(list_options, fields=f"metadata.name={target.name}"))
        watcher, initial = self._watcher(scope, list_options, form)
        shaped = offload if form.shape else run_inline
        return self._lines(watcher, initial, list_options.timeout, shaped, hold)

    async def _lines(
        self,
        watcher: watch_index.Watcher,
        initial: list[Entry] | None,
        timeout: int | None,
        offload: Offload,
        hold: Hold,
    ) -> AsyncGenerator[bytes, None]:
        try:
            if initial is not None and watcher.after > self._registry.store.revision:
                raise listing.too_large(watcher.after, self._registry.store.revision)
            seconds = timeout or self._rand.jitter(MIN_WATCH_SECONDS, 1.0)
            lines = watch_index.lines(
                watcher,
                initial,
                self._dispatcher,
                self._clock,
                seconds=seconds,
                offload=offload,
                hold=hold,
            )
            async with aclosing(lines):
                async for line in lines:
                    yield line
        except (store_errors.Compacted, errors.StatusError) as error:
            if isinstance(error, store_errors.Compacted):
                text = f"too old resource version: {watcher.after} ({error.compacted})"
                error = errors.expired(text)
            yield b'{"type":"ERROR","object":%s}\n' % msgspec.json.encode(error.status())
        finally:
            self._dispatcher.remove(watcher)

    def _watcher(
        self, scope: selection.Selection, list_options: options.ListOptions, form: negotiation.Form
    ) -> tuple[watch_index.Watcher, list[Entry] | None]:
        """A watcher, and the initial state if the request asks for it."""
        resource, store = scope.resource, self._registry.store
        initial: list[Entry] | None = None
        after = list_options.revision or 0
        negotiation.check(form)
        shows_state = (
            list_options.initial_events if list_options.initial_events is not None else not after
        )
        if not after or shows_state:
            after = max(store.revision, after)
        if shows_state:
            initial = listing.candidates(store, scope)

        def encode(event_type: watch_index.EventType, entry: Entry) -> bytes:
            obj = negotiation.event_object(
                resource, entry, form, self._clock.now(), headers=watcher.begin()
            )
            return b'{"type":"%s","object":%s}\n' % (event_type.encode(), obj)

        def bookmark(revision: int, initial_end: bool) -> bytes:
            return negotiation.bookmark(
                resource,
                form,
                revision,
                now=self._clock.now(),
                initial_end=initial_end,
                headers=watcher.begin(),
            )

        watcher = watch_index.Watcher(
            scope,
            f"{resource.api_version}/{form.key}",
            encode,
            bookmark if list_options.bookmarks else None,
            after,
            needs_columns=form.shape == "Table",
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
        return await self._answer_entry(exchange, target, entry, status=201, call=call)

    async def _update(
        self, exchange: Exchange, user: Identity, target: Target
    ) -> web.StreamResponse:
        call = self._call(exchange, user, "UpdateOptions")
        media, body = exchange.media, await exchange.body()

        def decode(live: Object | None) -> Object:
            return self._registry.decode(call, target.resource, body, media, live)

        entry, created = await self._registry.replace(call, target, decode)
        status = 201 if created else 200
        return await self._answer_entry(exchange, target, entry, status=status, call=call)

    async def _patch(
        self, exchange: Exchange, user: Identity, target: Target
    ) -> web.StreamResponse:
        media = exchange.content_type.partition(";")[0].strip()
        is_apply = media == patch_verb.APPLY
        if not is_apply and media not in patch_verb.MEDIA_TYPES:
            raise errors.StatusError(
                415, "UnsupportedMediaType", "415: Unsupported Media Type", details={}
            )
        mistakes = apply_verb.option_mistakes(exchange.query, is_apply=is_apply)
        call = self._call(exchange, user, "PatchOptions", mistakes)
        body = await exchange.body()
        if is_apply:
            entry, created = await apply_verb.patch(self._registry, call, target, body)
            status = 201 if created else 200
            return await self._answer_entry(exchange, target, entry, status=status, call=call)
        patch_format = patch_verb.MEDIA_TYPES[media]
        entry = await patch_verb.patch(self._registry, call, target, patch_format, body)
        return await self._answer_entry(exchange, target, entry, call=call)

    # -- deleting --------------------------------------------------------

    async def _delete(
        self, exchange: Exchange, user: Identity, target: Target
    ) -> web.StreamResponse:
        delete_options = await self._delete_options(exchange)
        call = Call(
            user, self._clock.now(), dry_run=delete_options.dry_run, warnings=exchange.warnings
        )
        entry, is_gone = await self._registry.delete(call, target, delete_options)
        strategy = self._registry.strategies[target.resource]
        if not is_gone or strategy.returns_deleted:
            code = 202 if not is_gone and delete_options.orphans is False else 200
            return await self._answer_entry(exchange, target, entry, status=code, call=call)
        resource = target.resource
        details = {
            "name": target.name,
            "group": resource.group,
            "kind": resource.plural,
            "uid": storage_codec.unpack(resource, entry)["metadata"]["uid"],
        }
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {name: value for name, value in details.items() if value},
        }
        return exchange.answer(msgspec.json.encode(status), warnings=call.warnings)

    async def _delete_options(self, exchange: Exchange) -> deletion.Options:
        body = await exchange.body()
        media = exchange.media if body else "json"
        return await exchange.offload(
            len(body), options.delete_options, exchange.query, body, media
        )

    async def _delete_collection(
        self, exchange: Exchange, user: Identity, target: Target
    ) -> web.StreamResponse:
        list_options = options.list_options(
            exchange.query, watch=options.flag(exchange.query, "watch")
        )
        selected = _selection(target, list_options)
        delete_options = await self._delete_options(exchange)
        page = await listing.plan(self._registry.store, selected, list_options)
        call = Call(
            user, self._clock.now(), dry_run=delete_options.dry_run, warnings=exchange.warnings
        )
        self._registry.warn_of_orphans(call, target.resource, delete_options)
        for entry in page.entries:
            namespace, _, name = entry.key.partition("/")[2].rpartition("/")
            one = Target(target.resource, namespace, name)
            try:
                await self._registry.delete(call, one, delete_options)
            except errors.StatusError as error:
                if error.code != 404:
                    raise
            await give_way()  # a dry run has no other await
        return await long_lists.send(exchange, target.resource, page, self._clock.now())

    # -- the pod's own subresources --------------------------------------

    async def _evict(
        self, exchange: Exchange, user: Identity, target: Target
    ) -> web.StreamResponse:
        call = self._call(exchange, user, "CreateOptions")
        obj = await self._subresource_body(exchange, call, target, "policy/v1", "Eviction")
        delete_options = options.eviction_options(
            target.name, obj.get("deleteOptions") or {}, dry_run=call.dry_run
        )
        call.dry_run = delete_options.dry_run
        await self._evictions.evict(call, target, delete_options)
        return exchange.answer(_SUCCESS, status=201, warnings=call.warnings)

    async def _bind(self, exchange: Exchange, user: Identity, target: Target) -> web.StreamResponse:
        call = self._call(exchange, user, "CreateOptions")
        obj = await self._subresource_body(exchange, call, target, "v1", "Binding")
        await binding.bind(self._registry, call, target, obj)
        return exchange.answer(_SUCCESS, status=201, warnings=call.warnings)

    async def _subresource_body(
        self, exchange: Exchange, call: Call, target: Target, api_version: str, kind: str
    ) -> Object:
        """The body of a subresource with a kind of its own."""
        media = exchange.media
        struct = schema.struct(api_version, kind)
        body = await exchange.body()
        obj = await call.run(0, registry.decode, call, body, struct, media)
        registry.set_namespace(target.resource, target.namespace, obj)
        if obj["metadata"].get("name") != target.name:
            raise errors.bad_request(f"name in URL does not match name in {kind} object")
        return obj


_SUCCESS = msgspec.json.encode(
    {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
)


def _selection(target: Target, list_options: options.ListOptions) -> selection.Selection:
    return selection.select(
        target.resource,
        target.namespace,
        label_text=list_options.labels,
        field_text=list_options.fields,
    )
