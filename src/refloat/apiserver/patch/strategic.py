# SPDX-License-Identifier: Apache-2.0
"""Strategic merge patches: merge patches that know which lists have keys.

The schema says per field whether a list is merged (by a key for objects, as
a set for scalars) or replaced. Directives in the patch are `$patch`,
`$retainKeys`, `$deleteFromPrimitiveList/<list>`, `$setElementOrder/<list>`.
`element_order` has the order of a merged list. New list items stay as they are,
with nulls and directives: the decoder drops or reports those, as in Kubernetes.
"""

from typing import Any

from refloat.api import errors, schema
from refloat.api.meta import Object
from refloat.apiserver.patch import element_order, go_values, merge_patch, rejections

DIRECTIVE = "$patch"
RETAIN_KEYS = "$retainKeys"
DELETE_LIST = "$deleteFromPrimitiveList"
SET_ORDER = "$setElementOrder"


def apply(doc: Object, patch: Any, struct: schema.Struct) -> Object:
    """The document after the patch; shares what the patch does not name."""
    if patch is None:
        return doc
    if not isinstance(patch, dict):
        raise errors.bad_request(rejections.not_an_object(patch))
    return _merge_map(doc, patch, struct)


def _merge_map(doc: Object, patch: Object, kind: schema.Type) -> Object:
    directive = patch.get(DIRECTIVE)
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != DIRECTIVE}
    if directive == "delete":
        return {}
    if DIRECTIVE in patch:
        raise _unknown_directive(patch)
    merged = doc.copy()
    if RETAIN_KEYS in patch:
        patch = patch.copy()
        retained = patch.pop(RETAIN_KEYS)
        if not isinstance(retained, list):
            raise _bad_format("retainKeys")
        # Names are strings; other values retain nothing.
        names = {each for each in retained if isinstance(each, str)}
        for key, value in patch.items():
            bare = value is None or key.startswith((DELETE_LIST, SET_ORDER))
            if not bare and key not in names:  # the patch may have no other members
                raise _bad_format("retainKeys")
        merged = {key: value for key, value in merged.items() if key in names}
    if any(key.startswith(SET_ORDER) for key in patch):
        patch = patch.copy()
        _merge_ordered(merged, patch, kind)
    for key, value in patch.items():
        _merge_member(merged, key, value, kind)
    return merged


def _unknown_directive(patch: Object) -> errors.StatusError:
    directive = go_values.show_string(patch[DIRECTIVE])
    return rejections.plain(f"unknown patch type: {directive} in map: {go_values.show(patch)}")


def _bad_format(what: str) -> errors.StatusError:
    return errors.bad_request(f"invalid patch format of {what}")


def _merge_member(merged: Object, key: str, value: Any, kind: schema.Type) -> None:
    deletion = key.startswith(DELETE_LIST)
    if deletion:
        key = _target(key, DELETE_LIST, "primitive list") or key
    current: Any = merged.get(key)
    if value is None:
        merged.pop(key, None)
    elif type(current) is not type(value):
        if _is_directed(value) and not deletion:
            merged.pop(key, None)
        elif not deletion:
            merged[key] = _without_directives(merge_patch.without_nulls(value))
    elif isinstance(value, dict):
        field = _field(kind, key)
        replaces = _strategy(field) == "replace"
        merged[key] = value if replaces else _merge_map(current, value, field.type)
    elif isinstance(value, list):
        merged[key] = _merge_list(current, value, _list_field(kind, key), deletion=deletion)
    else:
        merged[key] = value


def _target(key: str, prefix: str, what: str) -> str:
    head, slash, name = key.partition("/")
    if head != prefix or not slash:
        raise _bad_format(what)
    return name


def _without_directives(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_directives(each) for key, each in value.items() if not _is_directed(each)
        }
    if isinstance(value, list):
        return [_without_directives(each) for each in value if not _is_directed(each)]
    return value


def _is_directed(value: Any) -> bool:
    return isinstance(value, dict) and DIRECTIVE in value


def _field(kind: schema.Type, key: str) -> schema.Field:
    if not isinstance(kind, schema.Struct):
        shape = {schema.MapOf: "map", schema.ListOf: "slice"}.get(type(kind), "string")
        raise rejections.plain(
            f"merging an object in json but data type is not struct, instead is: {shape}"
        )
    field = kind.fields.get(key)
    if field is None:
        folded = key.casefold()
        field = next(
            (each for name, each in kind.fields.items() if name.casefold() == folded), None
        )
    if field is None:
        name = kind.go.rpartition(".")[2]
        raise rejections.plain(
            f'unable to find api field in struct {name} for the json field "{key}"'
        )
    return field


def _list_field(kind: schema.Type, key: str) -> schema.Field:
    field = _field(kind, key)
    if isinstance(field.type, schema.ListOf) or field.pointer:
        return field
    raise rejections.plain("expected slice or array type, but got: struct")


def _strategy(field: schema.Field) -> str:
    return next((each for each in field.patch_strategies if each != "retainKeys"), "")


def _merge_list(
    live: list[Any], patch: list[Any], field: schema.Field, *, deletion: bool = False
) -> list[Any]:
    if _strategy(field) != "merge" and not deletion:
        return patch
    if not live and not patch:
        return live
    if element_order.element_type(live, patch) is dict:
        return _merge_objects(live, patch, field)
    if deletion:
        deletions = set(patch)  # all of one type, which is no list and no map
        return [each for each in live if each not in deletions]
    united = list(dict.fromkeys([*live, *patch]))
    return element_order.arrange(united, patch, live, field.patch_merge_key)


def _merge_objects(live: list[Any], patch: list[Any], field: schema.Field) -> list[Any]:
    """Apply the items with `$patch`, then merge the others by their keys."""
    merge_key = field.patch_merge_key
    element = field.type.element if isinstance(field.type, schema.ListOf) else field.type
    if not merge_key:
        shape = "struct" if isinstance(element, schema.Struct) else "map"
        raise rejections.plain(f"cannot merge lists without merge key for {shape}")
    replaces = False
    deletions: set[element_order.Key] = set()
    for item in patch:
        directive = item.get(DIRECTIVE, "")
        if directive == "delete":
            deletions.add(element_order.key_of(item, merge_key))
        elif directive == "replace":
            replaces = True
        elif directive == "merge":
            raise rejections.plain("merging lists cannot yet be specified in the patch")
        elif DIRECTIVE in item:
            raise _unknown_directive(item)
    if deletions:
        live = [
            each
            for each in live
            if merge_key not in each or element_order.key_of(each, merge_key) not in deletions
        ]
    plain = [item for item in patch if DIRECTIVE not in item]
    live, patch = (plain, []) if replaces else (live, plain)
    merged = live.copy()
    places = element_order.places(merged, merge_key)
    for item in patch:
        key = element_order.key_of(item, merge_key)
        place = places.setdefault(key, len(merged))
        if place == len(merged):
            merged.append(item)
        else:
            merged[place] = _merge_map(merged[place], item, element)
    return element_order.arrange(merged, patch, live, merge_key)


def _merge_ordered(merged: Object, patch: Object, kind: schema.Type) -> None:
    """Merge the lists with a `$setElementOrder`, and remove them from the patch."""
    for directive in sorted(key for key in patch if key.startswith(SET_ORDER)):
        order = _as_list(patch.pop(directive))
        key = _target(directive, SET_ORDER, "setElementOrder list")
        live = _as_list(merged[key]) if key in merged else None
        items = _as_list(patch[key]) if key in patch else None
        field = _list_field(kind, key)
        element_order.check(items or [], order, field.patch_merge_key)
        if live is None and items is None:
            continue
        if live is None:
            united: list[Any] = _without_directives(items)
        else:
            united = live if items is None else _merge_list(live, items, field)
        element_order.element_type(live or [], items or [])
        merged[key] = element_order.arrange(united, order, live or [], field.patch_merge_key)
        patch.pop(key, None)


def _as_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise element_order.bad_argument("[]interface {}", value)
    return value
