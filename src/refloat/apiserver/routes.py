# SPDX-License-Identifier: Apache-2.0
"""The meaning of a request's address: resource, namespace, name and verb."""

from dataclasses import dataclass

from refloat.api import errors, kinds

# Stored resources, and reviews, which are not stored.
_SERVED = {
    **kinds.BY_PLURAL,
    **{(each.group, each.version, each.plural): each for each in kinds.VIRTUAL},
}


@dataclass(frozen=True, slots=True)
class Target:
    """The object or collection that an address names."""

    resource: kinds.Resource
    namespace: str = ""  # empty: cluster-scoped, or all namespaces
    name: str = ""  # empty: the collection
    subresource: str = ""
    legacy_watch: bool = False  # /api/v1/watch/..., older than ?watch=1


def parse(path: str) -> Target | None:
    """Read the address of a resource; None for other addresses."""
    parts = path.removeprefix("/").removesuffix("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    legacy_watch = rest[0] == "watch" and len(rest) > 1
    if legacy_watch:
        rest = rest[1:]
    if rest[0] == "namespaces" and len(rest) > 2:
        scoped = _SERVED.get((group, version, rest[2]))
        if scoped is not None and scoped.namespaced:
            return _target(scoped, rest[1], rest[3:], legacy_watch)
    resource = _SERVED.get((group, version, rest[0]))
    if resource is None or (resource.namespaced and len(rest) > 1):
        return None
    return _target(resource, "", rest[1:], legacy_watch)


def _target(
    resource: kinds.Resource, namespace: str, rest: list[str], legacy_watch: bool
) -> Target | None:
    name, subresource = (*rest, "", "")[:2]
    if len(rest) > 2 or (subresource and resource.subresource(subresource) is None):
        return None
    return Target(resource, namespace, name, subresource, legacy_watch)


_ON_COLLECTION = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_ON_OBJECT = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_ON_SUBRESOURCE = {"GET": "get", "PUT": "update", "PATCH": "patch", "POST": "create"}


def verb(method: str, target: Target, *, watch: bool) -> str:
    """The verb of a method on this target; raises 405 if there is none."""
    if target.legacy_watch:
        return _served("watch" if method == "GET" else "", target.resource.verbs)
    if target.subresource:
        action = _ON_SUBRESOURCE.get(method, "")
        served = target.resource.subresource(target.subresource)
        assert served is not None
        return _served(action, served.verbs)
    if target.name:
        if "get" not in target.resource.verbs:  # reviews have no names
            raise errors.page_not_found()
        return _served(_ON_OBJECT.get(method, ""), target.resource.verbs)
    action = _ON_COLLECTION.get(method, "")
    if action == "list" and watch:
        action = "watch"
    all_namespaces = target.resource.namespaced and not target.namespace
    if action in ("create", "deletecollection") and all_namespaces:
        raise errors.method_not_supported()
    return _served(action, target.resource.verbs)


def _served(action: str, verbs: tuple[str, ...]) -> str:
    if action not in verbs:
        raise errors.method_not_supported()
    return action
