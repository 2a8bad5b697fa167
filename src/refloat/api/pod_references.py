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

# Volumes that need an object whose name is of no interest, and Kubernetes' name for the kind.
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
    """The first object that a pod names, in Kubernetes' order and words; empty for none."""
    spec = pod["spec"]
    if spec.get("serviceAccountName"):
        return "serviceaccounts"
    plurals = {plural for plural, name in named_by(msgspec.json.encode(pod)) if name}
    for plural in ("secrets", "configmaps"):
        if plural in plurals:
            return plural
    if spec.get("resourceClaims"):
        return "resourceclaims"
    return next((kind for each in spec.get("volumes") or () for kind in _behind(each)), "")


def _behind(volume: Object) -> Iterator[str]:
    yield from (kind for source, kind in _BEHIND_VOLUMES if volume.get(source) is not None)
    for each in (volume.get("projected") or {}).get("sources") or ():
        yield from (kind for source, kind in _BEHIND_PROJECTIONS if each.get(source) is not None)


class _PodMetadata(msgspec.Struct):
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
    metadata: _PodMetadata
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
    references = _DECODER.decode(pod)
    spec = references.spec
    for group in (spec.initContainers, spec.containers, spec.ephemeralContainers):
        for container in group or ():
            for source in container.envFrom or ():
                yield from _referred(source, "configMapRef", "secretRef")
            for variable in container.env or ():
                yield from _referred(
                    variable.get("valueFrom") or {}, "configMapKeyRef", "secretKeyRef"
                )
    for volume in spec.volumes or ():
        yield from _named_by_volume(volume, references.metadata.name)
    for reference in spec.imagePullSecrets or ():
        yield "secrets", reference.get("name", "")


def _referred(source: dict[str, Any], config_map: str, secret: str) -> Iterator[Name]:
    if reference := source.get(config_map):
        yield "configmaps", reference.get("name", "")
    if reference := source.get(secret):
        yield "secrets", reference.get("name", "")


def _named_by_volume(volume: dict[str, Any], pod: str) -> Iterator[Name]:
    if reference := volume.get("configMap"):
        yield "configmaps", reference.get("name", "")
    elif reference := volume.get("persistentVolumeClaim"):
        yield "persistentvolumeclaims", reference["claimName"]
    elif volume.get("ephemeral"):
        yield "persistentvolumeclaims", f"{pod}-{volume['name']}"
    elif reference := volume.get("projected"):
        for source in reference.get("sources") or ():
            yield from _referred(source, "configMap", "secret")
    else:
        for kind, name in _SECRETS_OF_VOLUMES:
            if claim := (volume.get(kind) or {}).get(name):
                yield "secrets", claim if isinstance(claim, str) else claim.get("name", "")
