# SPDX-License-Identifier: Apache-2.0
"""The volumes of a pod: each has a name of its own and exactly one source.

`pod_projected.py` has files that come from the API.
"""

from refloat.api import fields, names, quantity
from refloat.api.meta import Object
from refloat.api.validation import pod_claims, pod_projected, volume_sources
from refloat.api.validation.rules import Errors
from refloat.api.validation.volume_sources import SourceCheck, requires

PULL_POLICIES = ("Always", "IfNotPresent", "Never")

_ISCSI_NAME_LENGTH = 64


def check_volumes(
    volumes: list[Object], pod: str | None, path: str, errors: Errors
) -> dict[str, Object]:
    """Check the volumes; return the valid ones by name, which alone can be mounted.

    `pod` is the pod's name, or None in a template.
    """
    ephemeral_claims = {
        f"{pod}-{each.get('name', '')}" for each in volumes if pod and "ephemeral" in each
    }
    valid: dict[str, Object] = {}
    for i, volume in enumerate(volumes):
        where, before = f"{path}[{i}]", len(errors)
        name = volume.get("name", "")
        _check_source(volume, pod, where, errors)
        errors.required_name(f"{where}.name", name, names.dns_label)
        errors.repeated(f"{where}.name", name, valid)
        if len(errors) == before:
            valid[name] = volume
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName", "")
        if claim in ephemeral_claims:
            detail = "must not reference a PVC that gets created for an ephemeral volume"
            errors.invalid(f"{where}.persistentVolumeClaim.claimName", claim, detail)
    return valid


def _check_source(volume: Object, pod: str | None, path: str, errors: Errors) -> None:
    kinds = [kind for kind in volume if kind in _SOURCES and volume[kind] is not None]
    if len(kinds) > 1:
        kinds.sort(key=_ORDER.index)
    if not kinds:
        errors.required(path, "must specify a volume type")
    for i, kind in enumerate(kinds):
        if i and kind != "emptyDir":
            where = f"{path}.{_REPEATED_AS.get(kind, kind)}"
            errors.forbidden(where, "may not specify more than 1 volume type")
        else:
            label = volume_sources.LABELS.get(kind, kind)
            _SOURCES[kind](volume[kind], f"{path}.{label}", errors)
    if (image := volume.get("image")) is not None and kinds == ["image"]:
        # A template may leave the reference out.
        errors.required_keys(image, ("reference",) if pod is not None else (), f"{path}.image")
        policy = image.get("pullPolicy", "")
        errors.required_one_of(f"{path}.image.pullPolicy", policy, PULL_POLICIES)
    # Some sources make longer names out of the volume's.
    name, iscsi = volume.get("name", ""), volume.get("iscsi") or {}
    target = f"{name}:{iscsi.get('targetPortal', '')}"
    if iscsi.get("initiatorName") is not None and len(target) > _ISCSI_NAME_LENGTH:
        detail = (
            "Total length of <volume name>:<iscsi.targetPortal> must be under "
            f"{_ISCSI_NAME_LENGTH} characters if iscsi.initiatorName is specified."
        )
        errors.invalid(f"{path}.name", name, detail)
    if kinds[:1] == ["ephemeral"] and pod and name:
        claim = f"{pod}-{name}"
        for complaint in names.dns_subdomain(claim):
            errors.invalid(f"{path}.name", name, f"PVC name {fields.quote(claim)}: {complaint}")


def _check_empty_dir(source: Object, path: str, errors: Errors) -> None:
    limit = source.get("sizeLimit")
    if limit is not None and quantity.value(limit) < 0:
        errors.forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")


def _check_git_repo(source: Object, path: str, errors: Errors) -> None:
    errors.required_keys(source, ("repository",), path)
    errors.descending_path(f"{path}.directory", source.get("directory", ""))


def _check_flex(source: Object, path: str, errors: Errors) -> None:
    errors.required_keys(source, ("driver",), path)
    for key in source.get("options") or ():
        domain = f".{key.partition('/')[0].lower()}"
        if domain.endswith((".kubernetes.io", ".k8s.io")):
            detail = "kubernetes.io and k8s.io namespaces are reserved"
            errors.invalid(f"{path}.options[{key}]", key, detail)


def _check_csi(source: Object, path: str, errors: Errors) -> None:
    volume_sources.check_csi_driver(source.get("driver", ""), f"{path}.driver", errors)
    if (reference := source.get("nodePublishSecretRef")) is not None:
        if name := reference.get("name"):
            errors.named(f"{path}.name", name, names.dns_subdomain)
        else:
            errors.required(f"{path}.nodePublishSecretRef.name")


# In the order in which Kubernetes looks at them: the first one is the volume's
# source, and each other one is an error.
_SOURCES: dict[str, SourceCheck] = {
    "emptyDir": _check_empty_dir,
    "hostPath": volume_sources.check_host_path,
    "gitRepo": _check_git_repo,
    "gcePersistentDisk": volume_sources.check_gce_disk,
    "awsElasticBlockStore": volume_sources.check_aws_disk,
    "secret": pod_projected.check_secret,
    "nfs": volume_sources.check_nfs,
    "iscsi": volume_sources.check_iscsi,
    "glusterfs": volume_sources.check_glusterfs,
    "flocker": volume_sources.check_flocker,
    "persistentVolumeClaim": requires("claimName"),
    "rbd": requires("monitors", "image"),
    "cinder": volume_sources.check_cinder,
    "cephfs": requires("monitors"),
    "quobyte": volume_sources.check_quobyte,
    "downwardAPI": pod_projected.check_downward_api,
    "fc": volume_sources.check_fibre_channel,
    "flexVolume": _check_flex,
    "configMap": pod_projected.check_config_map,
    "azureFile": volume_sources.check_azure_file,
    "vsphereVolume": requires("volumePath"),
    "photonPersistentDisk": requires("pdID"),
    "portworxVolume": requires("volumeID"),
    "azureDisk": volume_sources.check_azure_disk,
    "storageos": volume_sources.check_storage_os,
    "projected": pod_projected.check_projected,
    "scaleIO": requires("gateway", "system", "volumeName"),
    "csi": _check_csi,
    "ephemeral": pod_claims.check_ephemeral,
    "image": requires(),
}

_ORDER = tuple(_SOURCES)

# Kubernetes spells these names in another way where a source is one too many.
_REPEATED_AS = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}
