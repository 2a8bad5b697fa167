# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI v3 documents, one for each group version, and their index.

Each is made and encoded when somebody first asks for it, and kept: they do
not change while the server runs. `added` says whether they have the fields that
only Refloat has (`refloat.api.additions`).
"""

import hashlib
from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec

from refloat.api.meta import Object
from refloat.api.schema import Struct
from refloat.apiserver import discovery
from refloat.apiserver.openapi import answers, paths, schemas

_OPENAPI = "3.0.0"

_ENCODER = msgspec.json.Encoder()


@cache
def index(*, added: bool = False) -> Object:
    """`/openapi/v3`: where each document is, under an address that changes with it."""
    return {
        "paths": {path: {"serverRelativeURL": _address(path, added=added)} for path in _places()}
    }


def document(path: str, *, added: bool = False) -> bytes | None:
    """`/openapi/v3/<path>`, for example of `apis/batch/v1`; None when there is none."""
    return _encoded(path, added=added) if path in _places() else None


@cache
def digest(path: str, *, added: bool = False) -> str:
    """The hash of a document that there is, for its address and its ETag."""
    return hashlib.sha512(_encoded(path, added=added)).hexdigest().upper()


def _address(path: str, *, added: bool) -> str:
    return f"/openapi/v3/{path}?hash={digest(path, added=added)}"


@cache
def _places() -> dict[str, tuple[str, str]]:
    """The paths of all documents, with the group and version that each is about."""
    found = {"api": ("", ""), "apis": ("", ""), "version": ("", "")}
    found |= {f"apis/{group}": (group, "") for group in discovery.groups()}
    found |= {paths.root(*each).strip("/"): each for each in discovery.group_versions()}
    return dict(sorted(found.items()))


@cache
def _encoded(path: str, *, added: bool) -> bytes:
    group, version = _places()[path]
    if version:
        return _encode(paths.of(group, version), _components(group, version, added=added))
    item, answer = _plain(path, group)
    return _encode({f"/{path}/": item}, schemas.components([answer], "", ""))


def _components(group: str, version: str, *, added: bool) -> dict[str, schemas.Schema]:
    found = schemas.components(paths.structs(group, version, added=added), group, version)
    if any("patch" in each.verbs for each in paths.members(group, version)):
        found[schemas.PATCH] = schemas.leaf(schemas.PATCH)
    return found


def _plain(path: str, group: str) -> tuple[paths.Item, Struct]:
    """A document about discovery or the version."""
    if path == "version":
        says = "Says which version this server is."
        return _read(path, "getCodeVersion", says, answers.VERSION_INFO, ("application/json",))
    if path == "api":
        says = "Lists the versions of the core group."
        return _read("core", "getCoreAPIVersions", says, answers.API_VERSIONS)
    if path == "apis":
        return _read(path, "getAPIVersions", "Lists the groups.", answers.API_GROUP_LIST)
    name = paths.short(group)
    says = "Lists the versions of this group."
    return _read(name, f"get{name.capitalize()}APIGroup", says, answers.API_GROUP)


def _read(
    tag: str, name: str, says: str, answer: Struct, media: Iterable[str] = paths.MEDIA
) -> tuple[paths.Item, Struct]:
    return paths.plain_get(tag, name, says, answer, media), answer


def _encode(items: dict[str, paths.Item], components: dict[str, schemas.Schema]) -> bytes:
    version = f"{discovery.KUBERNETES_MAJOR}.{discovery.KUBERNETES_MINOR}"
    made: dict[str, Any] = {
        "openapi": _OPENAPI,
        "info": {"title": "Kubernetes", "version": version},
        "paths": items,
        "components": {
            "schemas": dict(sorted(components.items())),
            "securitySchemes": {
                "BearerToken": {
                    "type": "apiKey",
                    "description": "A bearer token.",
                    "name": "authorization",
                    "in": "header",
                }
            },
        },
    }
    return _ENCODER.encode(made)
