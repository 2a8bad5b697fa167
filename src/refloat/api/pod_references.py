# SPDX-License-Identifier: Apache-2.0
"""Which other objects a pod names.

A node may read what its pods name, and nothing else; and a pod that comes from
a file of the node's may name nothing at all, because it has to run while there
is no API server.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec

from refloat.api.meta import Object

Name: TypeAlias = tuple[str, str]
"""A resource's plural, and the name of one object in the pod's namespace."""

# Volumes that need an object whose name is of no interest, and how Kubernetes calls it.
_BEHIND_VOLUMES = (
    ("csi", "csidrivers (via CSI volumes)"),
    ("glusterfs", "endpoints (via glusterFS volumes)"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
)
_BEHIND_PROJECTIONS = (
    ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
    ("clusterTrustBundle", "clustertrustbundles"),
    ("podCertificate", "podcertificates"),
)


def first_kind(pod: Object) -> str:
    """What a pod names first, in Kubernetes' order and words; empty if it names nothing."""
    spec = pod["spec"]
    if spec.get("serviceAccountName"):
        return "serviceaccounts"
    named = {plural for plural, name in named_by(msgspec.json.encode(pod)) if name}
    for plural in ("secrets", "configmaps"):
        if plural in named:
            return plural
    if spec.get("resourceClaims"):
        return "resourceclaims"
    return next((kind for each in spec.get("volumes") or () for kind in _behind(each)), "")


def _behind(volume: Object) -> Iterator[str]:
    yield from (kind for source, kind in _BEHIND_VOLUMES if volume.get(source) is not None)
    for each in (volume.get("projected") or {}).get("sources") or ():
        yield from (kind for source, kind in _BEHIND_PROJECTIONS if each.get(source) is not None)


class _Metadata(msgspec.Struct):
    name: str = ""


class _Container(msgspec.Struct):
    env: list[dict[str, Any]] | None = None
    envFrom: list[dict[str, Any]] | None = None  # noqa: N815 - the wire's names


class _Spec(msgspec.Struct):
    containers: list[_Container] | None = None
    initContainers: list[_Container] | None = None  # noqa: N815
    ephemeralContainers: list[_Container] | None = None  # noqa: N815
    volumes: list[dict[str, Any]] | None = None
    imagePullSecrets: list[dict[str, Any]] | None = None  # noqa: N815


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec


_DECODER = msgspec.json.Decoder(_Pod)

# Where a volume names a secret: its source, the field, and where it differs the field within.
_SECRETS_OF_VOLUMES = (
    ("secret", "secretName"),
    ("azureFile", "secretName"),
    ("cephfs", "secretRef"),
    ("cinder", "secretRef"),
    ("csi", "nodePublishSecretRef"),
    ("flexVolume", "secretRef"),
    ("iscsi", "secretRef"),
    ("rbd", "secretRef"),
    ("scaleIO", "secretRef"),
    ("storageos", "secretRef"),
)


def named_by(pod: bytes) -> Iterator[Name]:
    """The ConfigMaps, Secrets and claims that an encoded pod names."""
    found = _DECODER.decode(pod)
    spec = found.spec
    for group in (spec.initContainers, spec.containers, spec.ephemeralContainers):
        for container in group or ():
            yield from _named_by_container(container)
    for volume in spec.volumes or ():
        yield from _named_by_volume(volume, found.metadata.name)
    for reference in spec.imagePullSecrets or ():
        yield "secrets", reference.get("name", "")


def _named_by_container(container: _Container) -> Iterator[Name]:
    for source in container.envFrom or ():
        yield from _referred(source, "configMapRef", "secretRef")
    for variable in container.env or ():
        yield from _referred(variable.get("valueFrom") or {}, "configMapKeyRef", "secretKeyRef")


def _referred(source: dict[str, Any], config_map: str, secret: str) -> Iterator[Name]:
    if found := source.get(config_map):
        yield "configmaps", found.get("name", "")
    if found := source.get(secret):
        yield "secrets", found.get("name", "")


def _named_by_volume(volume: dict[str, Any], pod: str) -> Iterator[Name]:
    if found := volume.get("configMap"):
        yield "configmaps", found.get("name", "")
    elif found := volume.get("persistentVolumeClaim"):
        yield "persistentvolumeclaims", found["claimName"]
    elif volume.get("ephemeral"):
        yield "persistentvolumeclaims", f"{pod}-{volume['name']}"
    elif found := volume.get("projected"):
        for source in found.get("sources") or ():
            yield from _referred(source, "configMap", "secret")
    else:
        yield from _secret_of_volume(volume)


def _secret_of_volume(volume: dict[str, Any]) -> Iterator[Name]:
    for source, name in _SECRETS_OF_VOLUMES:
        found = (volume.get(source) or {}).get(name)
        if found:
            yield "secrets", found if isinstance(found, str) else found.get("name", "")
