# SPDX-License-Identifier: Apache-2.0
"""Discovery documents: the groups, resources and version of the API server.

Clients read them first, to learn the kinds and their names. Every document
follows from the table in `refloat.api.kinds`; the caller encodes each document
once and keeps the bytes.

The same facts have two forms: the older form has a document for each group
version, and the aggregated form has everything in one document.
"""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import refloat
from refloat.api import kinds
from refloat.api.kinds import Resource, Subresource
from refloat.api.meta import Object

KUBERNETES_MAJOR = "1"
KUBERNETES_MINOR = "36"
KUBERNETES_VERSION = f"v{KUBERNETES_MAJOR}.{KUBERNETES_MINOR}.3"
"""The Kubernetes whose API Refloat's follows."""

# The oldest minor release that can read what this release writes.
_COMPATIBLE_MINOR = "35"

# The order of Kubernetes, in which clients look up a short or ambiguous name:
# they must find `ev` in the core group first.
_GROUP_ORDER = (
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "batch",
    "policy",
    "storage.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
)

AGGREGATED_TYPE = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
"""The content type of the aggregated form, to ask for and to answer with."""

_STORAGE_HASH_BYTES = 8


def version(platform: str = "") -> Object:
    """`/version`, for clients and for people."""
    return {
        "major": KUBERNETES_MAJOR,
        "minor": KUBERNETES_MINOR,
        "emulationMajor": KUBERNETES_MAJOR,
        "emulationMinor": KUBERNETES_MINOR,
        "minCompatibilityMajor": KUBERNETES_MAJOR,
        "minCompatibilityMinor": _COMPATIBLE_MINOR,
        "gitVersion": f"{KUBERNETES_VERSION}+refloat-{refloat.__version__}",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": platform,
    }


def api_versions(server_address: str) -> Object:
    """`/api`: the versions of the core group."""
    return {
        "kind": "APIVersions",
        "versions": _versions(""),
        "serverAddressByClientCIDRs": [
            {"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}
        ],
    }


def api_group_list() -> Object:
    """`/apis`: all groups but the core one."""
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_group(name) for name in groups()],
    }


def api_group(name: str) -> Object:
    """`/apis/<group>`; a group that is not in `groups()` is a bug in the caller."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name)}


def api_resource_list(group: str, group_version: str) -> Object:
    """`/api/v1` and `/apis/<group>/<version>`."""
    document: Object = {"kind": "APIResourceList"}
    if group:  # the core group's document has no version
        document["apiVersion"] = "v1"
    document["groupVersion"] = _joined(group, group_version)
    document["resources"] = [
        entry for each in _members(group, group_version) for entry in _entries(each)
    ]
    return document


def aggregated_core() -> Object:
    """`/api` in the aggregated form."""
    return _aggregated([_discovered({}, "")])


def aggregated_groups() -> Object:
    """`/apis` in the aggregated form."""
    return _aggregated(_discovered({"name": name}, name) for name in groups())


def groups() -> list[str]:
    """The names of all groups but the core one, in the order of their priority."""
    names = sorted({each.group for each in _all()} - {""})
    order = {name: place for place, name in enumerate(_GROUP_ORDER)}
    return sorted(names, key=lambda name: order.get(name, len(order)))


def group_versions() -> list[tuple[str, str]]:
    """Every group with each of its versions, the core group's first."""
    return [(group, each) for group in ["", *groups()] for each in _versions(group)]


def _all() -> Sequence[Resource]:
    return (*kinds.RESOURCES, *kinds.VIRTUAL)


def _versions(group: str) -> list[str]:
    return list(dict.fromkeys(each.version for each in _all() if each.group == group))


def _members(group: str, group_version: str) -> list[Resource]:
    members = [each for each in _all() if (each.group, each.version) == (group, group_version)]
    return sorted(members, key=lambda each: each.plural)


def _joined(group: str, group_version: str) -> str:
    return f"{group}/{group_version}" if group else group_version


def _group(name: str) -> dict[str, Any]:
    served = [{"groupVersion": _joined(name, each), "version": each} for each in _versions(name)]
    return {"name": name, "versions": served, "preferredVersion": served[0]}


def _entries(resource: Resource) -> list[dict[str, Any]]:
    """A resource and its subresources."""
    entry: dict[str, Any] = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
        **_names(resource),
    }
    if resource not in kinds.VIRTUAL:
        # Clients only compare the hash. Both kinds of events are stored as one.
        group = "" if resource.plural == "events" else resource.group
        text = f"{group}/{resource.version}/{resource.kind}"
        digest = hashlib.sha256(text.encode()).digest()[:_STORAGE_HASH_BYTES]
        entry["storageVersionHash"] = base64.b64encode(digest).decode()
    entries = [entry]
    for part in _parts(resource):
        place = {"group": part.group, "version": part.version}
        entries.append(
            {
                "name": f"{resource.plural}/{part.name}",
                "singularName": "",
                "namespaced": resource.namespaced,
                **(place if part.group or part.version else {}),
                "kind": part.kind or resource.kind,
                "verbs": list(part.verbs),
            }
        )
    return entries


def _parts(resource: Resource) -> list[Subresource]:
    return sorted(resource.subresources, key=lambda each: each.name)


def _names(resource: Resource) -> dict[str, list[str]]:
    """Other names for a kind, and names for several kinds together."""
    names: dict[str, list[str]] = {}
    if resource.short_names:
        names["shortNames"] = list(resource.short_names)
    if resource.categories:
        names["categories"] = list(resource.categories)
    return names


def _aggregated(items: Iterable[dict[str, Any]]) -> Object:
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": list(items),
    }


def _discovered(metadata: dict[str, str], group: str) -> dict[str, Any]:
    versions = []
    for version in _versions(group):
        resources = []
        for resource in _members(group, version):
            entry: dict[str, Any] = {
                "resource": resource.plural,
                "responseKind": _response_kind(resource.kind),
                "scope": "Namespaced" if resource.namespaced else "Cluster",
                "singularResource": resource.singular,
                "verbs": list(resource.verbs),
                **_names(resource),
            }
            if resource.subresources:
                entry["subresources"] = [
                    {
                        "subresource": part.name,
                        "responseKind": _response_kind(
                            part.kind or resource.kind, part.group, part.version
                        ),
                        "verbs": list(part.verbs),
                    }
                    for part in _parts(resource)
                ]
            resources.append(entry)
        versions.append({"version": version, "resources": resources, "freshness": "Current"})
    return {"metadata": metadata, "versions": versions}


def _response_kind(kind: str, group: str = "", kind_version: str = "") -> dict[str, str]:
    """Empty group and version mean those of the document."""
    return {"group": group, "version": kind_version, "kind": kind}
