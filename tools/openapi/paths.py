# SPDX-License-Identifier: Apache-2.0
"""The addresses of a group version with their verbs, as OpenAPI paths.

The paths follow from the verbs in `refloat.api.kinds`. kubectl checks here whether a
kind's PATCH takes `fieldValidation`. If not, kubectl validates by itself, badly.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from tools.openapi import parameters, responses, schemas

from refloat.api import gated_fields, kinds, schema
from refloat.api.kinds import Resource, Subresource
from refloat.api.schema import Struct

Item: TypeAlias = dict[str, Any]

MEDIA = ("application/json", "application/yaml")
_STREAMED = ("application/json", "application/json;stream=watch", "application/yaml")
_PATCH_MEDIA = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
_ANY_MEDIA = ("*/*",)
_LOG_MEDIA = (*MEDIA, "text/plain")

_STRING = {"type": "string"}

_CODES = {"200": "OK", "201": "Created", "202": "Accepted"}

# A delete answers with the object itself, which may live on for a while.
_DELETED_OBJECT = frozenset(
    {
        "PersistentVolume",
        "PersistentVolumeClaim",
        "Pod",
        "Service",
        "ServiceAccount",
        "VolumeAttachment",
    }
)


@dataclass(frozen=True, slots=True)
class _Place:
    """A resource or a part of it, and the words that operations there are named with."""

    resource: Resource
    kind: str  # of the bodies
    api_version: str
    suffix: str = ""  # the subresource's, in names of operations

    @property
    def group_version(self) -> str:
        return _camel(self.resource.group, self.resource.version)

    @property
    def scoped(self) -> str:
        infix = "Namespaced" if self.resource.namespaced else ""
        return f"{infix}{self.resource.kind}{self.suffix}"

    @property
    def tag(self) -> str:
        return f"{short(self.resource.group)}_{self.resource.version}"

    @property
    def body(self) -> Item:
        return _of(schema.struct(self.api_version, self.kind))


@dataclass(frozen=True, slots=True)
class _Operation:
    method: str
    name: str
    action: str
    says: str
    responses: Item
    query: tuple[str, ...] = ()
    request: Item | None = None


def of(group: str, version: str) -> dict[str, Item]:
    """Every address of a group version, in order."""
    items = {f"{root(group, version)}/": _resource_list(group, version)}
    for resource in members(group, version):
        items |= _of_resource(resource)
    return dict(sorted(items.items()))


def structs(group: str, version: str, *, gated: bool) -> list[Struct]:
    """The types that requests and answers have at these addresses."""
    of_kind = gated_fields.struct if gated else schema.struct
    answers = [responses.API_RESOURCE_LIST]
    for each in members(group, version):
        answers.append(of_kind(each.api_version, each.kind))
        if "list" in each.verbs:
            answers.append(of_kind(each.api_version, f"{each.kind}List"))
            answers.extend((_delete_options(), _status(), responses.WATCH_EVENT))
        answers.extend(
            of_kind(_part_version(each, part), part.kind)
            for part in each.subresources
            if part.kind and part.name not in parameters.CONNECT
        )
    return answers


def members(group: str, version: str) -> list[Resource]:
    every_kind = (*kinds.RESOURCES, *kinds.VIRTUAL)
    return [each for each in every_kind if (each.group, each.version) == (group, version)]


def root(group: str, version: str) -> str:
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


def short(group: str) -> str:
    """`events` for `events.k8s.io`, `core` for the group without a name."""
    return group.partition(".")[0] or "core"


def plain_get(tag: str, name: str, says: str, answer: Struct, media: Iterable[str] = MEDIA) -> Item:
    """A document that can only be read."""
    responses = _responses(_of(answer), ("200",), media)
    return {
        "get": {"tags": [tag], "description": says, "operationId": name, "responses": responses}
    }


def _delete_options() -> Struct:
    return schema.struct("v1", "DeleteOptions")


def _status() -> Struct:
    return schema.struct("v1", "Status")


def _camel(group: str, version: str) -> str:
    return short(group).capitalize() + version.capitalize()


def _of(struct: Struct) -> Item:
    return schemas.reference(schemas.name_of(struct))


def _resource_list(group: str, version: str) -> Item:
    return plain_get(
        f"{short(group)}_{version}",
        f"get{_camel(group, version)}APIResources",
        "Lists the resources of this version.",
        responses.API_RESOURCE_LIST,
    )


def _of_resource(resource: Resource) -> dict[str, Item]:
    base = root(resource.group, resource.version)
    scope = "/namespaces/{namespace}" if resource.namespaced else ""
    within = ("namespace",) if resource.namespaced else ()
    place = _Place(resource, resource.kind, resource.api_version)
    collection = f"{scope}/{resource.plural}"
    one = f"{collection}/{{name}}"
    items = {
        base + collection: _item(place, _on_collection(place), within),
        base + one: _item(place, _on_object(place), (*within, "name")),
    }
    for part in resource.subresources:
        at = _part_place(resource, part)
        items[f"{base}{one}/{part.name}"] = _item(at, _on_part(at, part), (*within, "name"))
    if "watch" in resource.verbs:
        items[f"{base}/watch{collection}"] = _item(place, [_watch_list(place)], within)
        items[f"{base}/watch{one}"] = _item(place, [_watch(place)], (*within, "name"))
    if resource.namespaced:
        items |= _across_namespaces(base, place)
    return {address: item for address, item in items.items() if item}


def _across_namespaces(base: str, place: _Place) -> dict[str, Item]:
    plural = place.resource.plural
    everywhere = "ForAllNamespaces"
    return {
        f"{base}/{plural}": _item(place, [_list(place, everywhere)], ()),
        f"{base}/watch/{plural}": _item(place, [_watch_list(place, everywhere)], ()),
    }


def _part_version(resource: Resource, part: Subresource) -> str:
    if not part.version:
        return resource.api_version
    return f"{part.group}/{part.version}" if part.group else part.version


def _part_place(resource: Resource, part: Subresource) -> _Place:
    return _Place(
        resource,
        part.kind or resource.kind,
        _part_version(resource, part),
        part.name.capitalize(),
    )


def _on_collection(place: _Place) -> list[_Operation]:
    return _served(
        place.resource.verbs,
        {
            "list": lambda: _list(place),
            "create": lambda: _create(place),
            "deletecollection": lambda: _delete_collection(place),
        },
    )


def _on_object(place: _Place) -> list[_Operation]:
    return _served(
        place.resource.verbs,
        {
            "get": lambda: _get(place),
            "update": lambda: _update(place),
            "delete": lambda: _delete(place),
            "patch": lambda: _patch(place),
        },
    )


def _on_part(place: _Place, part: Subresource) -> list[_Operation]:
    if part.name in parameters.CONNECT:
        query = parameters.CONNECT[part.name]
        return [_connect(place, method, query) for method in ("get", "post")]
    if part.name == "log":
        return [_log(place)]
    return _served(
        part.verbs,
        {
            "get": lambda: _get(place),
            "update": lambda: _update(place),
            "create": lambda: _create(place),
            "patch": lambda: _patch(place),
        },
    )


def _served(
    verbs: tuple[str, ...], makers: dict[str, Callable[[], _Operation]]
) -> list[_Operation]:
    return [make() for verb, make in makers.items() if verb in verbs]


def _list(place: _Place, where: str = "") -> _Operation:
    scoped = f"{place.kind}{where}" if where else place.scoped
    list_schema = _of(schema.struct(place.api_version, f"{place.kind}List"))
    return _Operation(
        "get",
        f"list{place.group_version}{scoped}",
        "list",
        f"Lists or watches objects of kind {place.kind}.",
        _responses(list_schema, ("200",), _STREAMED),
        query=(*parameters.LIST, parameters.PRETTY),
    )


def _watch_list(place: _Place, where: str = "") -> _Operation:
    scoped = f"{place.kind}List{where}" if where else f"{place.scoped}List"
    return _watching(place, scoped, "watchlist")


def _watch(place: _Place) -> _Operation:
    return _watching(place, place.scoped, "watch")


def _watching(place: _Place, scoped: str, action: str) -> _Operation:
    return _Operation(
        "get",
        f"watch{place.group_version}{scoped}",
        action,
        f"Watches objects of kind {place.kind}. Deprecated: list with the parameter watch.",
        _responses(_of(responses.WATCH_EVENT), ("200",), _STREAMED),
        query=(*parameters.LIST, parameters.PRETTY),
    )


def _create(place: _Place) -> _Operation:
    return _Operation(
        "post",
        f"create{place.group_version}{place.scoped}",
        "post",
        f"Creates {_article(place.kind)}.",
        _responses(place.body, ("200", "201", "202")),
        query=(*parameters.WRITE, parameters.PRETTY),
        request=_request(place.body, required=True),
    )


def _delete_collection(place: _Place) -> _Operation:
    return _Operation(
        "delete",
        f"delete{place.group_version}Collection{place.scoped}",
        "deletecollection",
        f"Deletes all matching objects of kind {place.kind}.",
        _responses(_of(_status()), ("200",)),
        query=(*parameters.DELETE_COLLECTION, parameters.PRETTY),
        request=_request(_of(_delete_options())),
    )


def _get(place: _Place) -> _Operation:
    return _Operation(
        "get",
        f"read{place.group_version}{place.scoped}",
        "get",
        f"Reads {_part_of(place)}.",
        _responses(place.body, ("200",)),
        query=(parameters.PRETTY,),
    )


def _update(place: _Place) -> _Operation:
    return _Operation(
        "put",
        f"replace{place.group_version}{place.scoped}",
        "put",
        f"Replaces {_part_of(place)}.",
        _responses(place.body, ("200", "201")),
        query=(*parameters.WRITE, parameters.PRETTY),
        request=_request(place.body, required=True),
    )


def _delete(place: _Place) -> _Operation:
    answer = place.body if place.kind in _DELETED_OBJECT else _of(_status())
    return _Operation(
        "delete",
        f"delete{place.group_version}{place.scoped}",
        "delete",
        f"Deletes {_article(place.kind)}.",
        _responses(answer, ("200", "202")),
        query=(*parameters.DELETE, parameters.PRETTY),
        request=_request(_of(_delete_options())),
    )


def _patch(place: _Place) -> _Operation:
    patch = schemas.reference(schemas.PATCH)
    return _Operation(
        "patch",
        f"patch{place.group_version}{place.scoped}",
        "patch",
        f"Changes {_part_of(place)} in part, or applies a configuration to it.",
        _responses(place.body, ("200", "201")),
        query=(*parameters.PATCH, parameters.PRETTY),
        request=_request(patch, _PATCH_MEDIA, required=True),
    )


def _connect(place: _Place, method: str, query: tuple[str, ...]) -> _Operation:
    return _Operation(
        method,
        f"connect{place.group_version}{method.capitalize()}{place.scoped}",
        "connect",
        f"Not served here: {place.suffix.lower()} of {_article(place.resource.kind)}.",
        _responses(_STRING, ("200",), _ANY_MEDIA),
        query=query,
    )


def _log(place: _Place) -> _Operation:
    return _Operation(
        "get",
        f"read{place.group_version}{place.scoped}",
        "get",
        f"Reads the log of a container of {_article(place.kind)}.",
        _responses(_STRING, ("200",), _LOG_MEDIA),
        query=(*parameters.LOG, parameters.PRETTY),
    )


def _article(kind: str) -> str:
    return f"{'an' if kind[0] in 'AEIOU' else 'a'} {kind}"


def _part_of(place: _Place) -> str:
    whole = _article(place.kind)
    return f"the {place.suffix.lower()} of {whole}" if place.suffix else whole


def _request(body: Item, media: Iterable[str] = _ANY_MEDIA, *, required: bool = False) -> Item:
    item: Item = {"content": _content(body, media)}
    if required:
        item["required"] = True
    return item


def _responses(body: Item, codes: Iterable[str], media: Iterable[str] = MEDIA) -> Item:
    content = _content(body, media)
    item: Item = {code: {"description": _CODES[code], "content": content} for code in codes}
    return item | {"401": {"description": "Unauthorized"}}


def _content(body: Item, media: Iterable[str]) -> Item:
    return {each: {"schema": body} for each in media}


def _item(place: _Place, operations: list[_Operation], address: tuple[str, ...]) -> Item:
    """One address, with the common parameters of all operations once."""
    if not operations:
        return {}
    shared = set.intersection(*(set(each.query) for each in operations))
    item: Item = {each.method: _operation(place, each, shared) for each in operations}
    if shared or address:
        item["parameters"] = parameters.made((*shared, *address), place.resource.kind)
    return item


def _operation(place: _Place, operation: _Operation, shared: set[str]) -> Item:
    group, _, version = place.api_version.rpartition("/")
    item: Item = {
        "tags": [place.tag],
        "description": operation.says,
        "operationId": operation.name,
    }
    own = set(operation.query) - shared
    if own:
        item["parameters"] = parameters.made(own, place.kind)
    if operation.request:
        item["requestBody"] = operation.request
    item["responses"] = operation.responses
    item["x-kubernetes-action"] = operation.action
    item["x-kubernetes-group-version-kind"] = {
        "group": group,
        "version": version,
        "kind": place.kind,
    }
    return item
