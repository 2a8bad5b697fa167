# SPDX-License-Identifier: Apache-2.0
"""Build the OpenAPI v3 documents, one for each group version and one for each page of discovery."""

from collections.abc import Iterable
from typing import Any

import msgspec
from tools.openapi import paths, responses, schemas

from refloat.api.schema import Struct
from refloat.apiserver import discovery

_OPENAPI = "3.0.0"


def build() -> dict[str, dict[str, bytes]]:
    """The encoded documents by path, and the variants with `refloat.api.gated_fields`."""
    documents = {path: _document(path, *each, gated=False) for path, each in _targets().items()}
    gated = {path: _document(path, *each, gated=True) for path, each in _targets().items()}
    return {
        "documents": documents,
        "gated": {path: body for path, body in gated.items() if body != documents[path]},
    }


def _document(path: str, group: str, version: str, *, gated: bool) -> bytes:
    if version:
        return _encode(paths.of(group, version), _components(group, version, gated=gated))
    item, answer = _plain(path, group)
    return _encode({f"/{path}/": item}, schemas.components([answer], "", ""))


def _targets() -> dict[str, tuple[str, str]]:
    """The paths of all documents, each with its group and version."""
    targets = {"api": ("", ""), "apis": ("", ""), "version": ("", "")}
    targets |= {f"apis/{group}": (group, "") for group in discovery.groups()}
    targets |= {paths.root(*each).strip("/"): each for each in discovery.group_versions()}
    return dict(sorted(targets.items()))


def _components(group: str, version: str, *, gated: bool) -> dict[str, schemas.Schema]:
    schemas_by_name = schemas.components(paths.structs(group, version, gated=gated), group, version)
    if any("patch" in each.verbs for each in paths.members(group, version)):
        schemas_by_name[schemas.PATCH] = schemas.leaf(schemas.PATCH)
    return schemas_by_name


def _plain(path: str, group: str) -> tuple[paths.Item, Struct]:
    """A document about discovery or the version."""
    if path == "version":
        says = "Says which version this server is."
        return _read(path, "getCodeVersion", says, responses.VERSION_INFO, ("application/json",))
    if path == "api":
        says = "Lists the versions of the core group."
        return _read("core", "getCoreAPIVersions", says, responses.API_VERSIONS)
    if path == "apis":
        return _read(path, "getAPIVersions", "Lists the groups.", responses.API_GROUP_LIST)
    name = paths.short(group)
    says = "Lists the versions of this group."
    return _read(name, f"get{name.capitalize()}APIGroup", says, responses.API_GROUP)


def _read(
    tag: str, name: str, says: str, answer: Struct, media: Iterable[str] = paths.MEDIA
) -> tuple[paths.Item, Struct]:
    return paths.plain_get(tag, name, says, answer, media), answer


def _encode(items: dict[str, paths.Item], components: dict[str, schemas.Schema]) -> bytes:
    version = f"{discovery.KUBERNETES_MAJOR}.{discovery.KUBERNETES_MINOR}"
    document: dict[str, Any] = {
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
    return msgspec.json.encode(document)
