# SPDX-License-Identifier: Apache-2.0
"""The volumes of a pod: each has a name of its own and exactly one source.

Files that are projected into a volume are in `pod_projected.py`.
"""

import re
from collections.abc import Callable
from typing import TypeAlias

from refloat.api import fields, names, quantity
from refloat.api.meta import Object
from refloat.api.validation import pod_projected as projected
from refloat.api.validation import pod_rules as rules
from refloat.api.validation.pod_claims import check_claim_template
from refloat.api.validation.pod_rules import Errors

SourceCheck: TypeAlias = Callable[[Object, str, Errors], None]

PULL_POLICIES = ("Always", "IfNotPresent", "Never")

_HOST_PATH_TYPES = (
    *("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate"),
    *("File", "FileOrCreate", "Socket"),
)
_CSI_DRIVER_LENGTH = 63
_ISCSI_NAME_LENGTH = 64
_TENANT_LENGTH = 64
_INITIATORS = {
    "iqn": re.compile(r"iqn\.[0-9]{4}-[0-9]{2}\.[A-Za-z0-9\-.]+:[^,;*&$|\s]+\Z").search,
    "eui": re.compile(r"eui.[A-Za-z0-9]{16}").fullmatch,
    "naa": re.compile(r"naa.[A-Za-z0-9]{32}").fullmatch,
}
_CACHING_MODES = ("None", "ReadOnly", "ReadWrite")
_DISK_KINDS = ("Dedicated", "Managed", "Shared")
_MANAGED_DISK = (
    "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute"
    "/disks/{disk-id}"
)
_BLOB_DISK = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
_HOST_AND_PORT = "must be a host:port pair or multiple pairs separated by commas"


def check_volumes(
    volumes: list[Object], pod: str | None, path: str, errors: Errors
) -> dict[str, Object]:
    """Check them all; return the good ones by name, which alone can be mounted.

    `pod` is the pod's name, or None in a template.
    """
    made = {f"{pod}-{each.get('name', '')}" for each in volumes if pod and "ephemeral" in each}
    good: dict[str, Object] = {}
    for i, volume in enumerate(volumes):
        where = f"{path}[{i}]"
        before = len(errors)
        _check_volume(volume, pod, good, where, errors)
        if len(errors) == before:
            good[volume["name"]] = volume
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName", "")
        if claim in made:
            detail = "must not reference a PVC that gets created for an ephemeral volume"
            where = f"{where}.persistentVolumeClaim.claimName"
            errors.append(fields.invalid(where, claim, detail))
    return good


def _check_volume(
    volume: Object, pod: str | None, good: dict[str, Object], path: str, errors: Errors
) -> None:
    name = volume.get("name", "")
    _check_source(volume, pod, path, errors)
    rules.required_name(errors, f"{path}.name", name, names.dns_label)
    rules.repeated(errors, f"{path}.name", name, good)


def _check_source(volume: Object, pod: str | None, path: str, errors: Errors) -> None:
    given = [kind for kind in volume if kind in _SOURCES and volume[kind] is not None]
    if len(given) > 1:
        given.sort(key=_ORDER.index)
    if not given:
        errors.append(fields.required(path, "must specify a volume type"))
    for i, kind in enumerate(given):
        check, where = _SOURCES[kind]
        if i and kind != "emptyDir":
            where = _REPEATED_AS.get(kind, kind)
            detail = "may not specify more than 1 volume type"
            errors.append(fields.forbidden(f"{path}.{where}", detail))
        else:
            if kind == "image" and pod is not None:
                rules.required_keys(errors, volume[kind], ("reference",), f"{path}.image")
            check(volume[kind], f"{path}.{where}", errors)
    _check_name_for_source(volume, given, pod, path, errors)


def _check_name_for_source(
    volume: Object, given: list[str], pod: str | None, path: str, errors: Errors
) -> None:
    """Some sources make longer names out of the volume's."""
    name = volume.get("name", "")
    if "iscsi" in given and _iscsi_name_length(name, volume["iscsi"]) > _ISCSI_NAME_LENGTH:
        detail = (
            "Total length of <volume name>:<iscsi.targetPortal> must be under "
            f"{_ISCSI_NAME_LENGTH} characters if iscsi.initiatorName is specified."
        )
        errors.append(fields.invalid(f"{path}.name", name, detail))
    if given[:1] == ["ephemeral"] and pod and name:
        claim = f"{pod}-{name}"
        for complaint in names.dns_subdomain(claim):
            detail = f"PVC name {fields.quote(claim)}: {complaint}"
            errors.append(fields.invalid(f"{path}.name", name, detail))


def _iscsi_name_length(name: str, source: Object) -> int:
    if source.get("initiatorName") is None:
        return 0
    return len(f"{name}:{source.get('targetPortal', '')}")


def _requires(*keys: str) -> SourceCheck:
    """A source of which nothing is known but the fields that it needs."""

    def check(source: Object, path: str, errors: Errors) -> None:
        rules.required_keys(errors, source, keys, path)

    return check


def _check_empty_dir(source: Object, path: str, errors: Errors) -> None:
    limit = source.get("sizeLimit")
    if limit is not None and quantity.value(limit) < 0:
        detail = "SizeLimit field must be a valid resource quantity"
        errors.append(fields.forbidden(f"{path}.sizeLimit", detail))


def _check_host_path(source: Object, path: str, errors: Errors) -> None:
    file = source.get("path", "")
    if not file:
        errors.append(fields.required(f"{path}.path"))
        return
    rules.no_backsteps(errors, f"{path}.path", file)
    if (kind := source.get("type")) is not None:
        rules.one_of(errors, f"{path}.type", kind, _HOST_PATH_TYPES)


def _check_git_repo(source: Object, path: str, errors: Errors) -> None:
    rules.required_keys(errors, source, ("repository",), path)
    rules.descending_path(errors, f"{path}.directory", source.get("directory", ""))


def _check_disk(key: str) -> SourceCheck:
    def check(source: Object, path: str, errors: Errors) -> None:
        rules.required_keys(errors, source, (key,), path)
        if not 0 <= (partition := source.get("partition", 0)) <= 255:
            detail = names.inclusive_range(1, 255)
            errors.append(fields.invalid(f"{path}.partition", partition, detail))

    return check


def _check_nfs(source: Object, path: str, errors: Errors) -> None:
    rules.required_keys(errors, source, ("server", "path"), path)
    if not (export := source.get("path", "")).startswith("/"):
        errors.append(fields.invalid(f"{path}.path", export, "must be an absolute path"))


def _check_iscsi(source: Object, path: str, errors: Errors) -> None:
    rules.required_keys(errors, source, ("targetPortal",), path)
    if target := source.get("iqn", ""):
        _check_initiator(target, f"{path}.iqn", errors)
    else:
        errors.append(fields.required(f"{path}.iqn"))
    _check_lun(source.get("lun", 0), path, errors)
    chap = source.get("chapAuthDiscovery") or source.get("chapAuthSession")
    if chap and source.get("secretRef") is None:
        errors.append(fields.required(f"{path}.secretRef"))
    if (initiator := source.get("initiatorName")) is not None:
        _check_initiator(initiator, f"{path}.initiatorname", errors)


def _check_initiator(name: str, path: str, errors: Errors) -> None:
    matches = _INITIATORS.get(name[:3])
    if matches is None:
        detail = "must be valid format starting with iqn, eui, or naa"
        errors.append(fields.invalid(path, name, detail))
    elif not matches(name):
        errors.append(fields.invalid(path, name, "must be valid format"))


def is_initiator(name: str) -> bool:
    """Is this the name of an iSCSI initiator or target, in one of its three forms?"""
    matches = _INITIATORS.get(name[:3])
    return matches is not None and matches(name) is not None


def _check_lun(lun: int, path: str, errors: Errors) -> None:
    errors += fields.invalid_each(f"{path}.lun", lun, names.in_range(lun, 0, 255))


def _check_fibre_channel(source: Object, path: str, errors: Errors) -> None:
    targets, wwids = source.get("targetWWNs"), source.get("wwids")
    where = f"{path}.targetWWNs"
    if not targets and not wwids:
        detail = "must specify either targetWWNs or wwids, but not both"
        errors.append(fields.required(where, detail))
    if targets and wwids:
        detail = "targetWWNs and wwids can not be specified simultaneously"
        errors.append(fields.invalid(where, targets, detail))
    if targets and source.get("lun") is None:
        detail = "lun is required if targetWWNs is specified"
        errors.append(fields.required(f"{path}.lun", detail))
    elif targets:
        _check_lun(source["lun"], path, errors)


def _check_flocker(source: Object, path: str, errors: Errors) -> None:
    name, uuid = source.get("datasetName", ""), source.get("datasetUUID", "")
    if not name and not uuid:
        detail = "one of datasetName and datasetUUID is required"
        errors.append(fields.required(path, detail))
    if name and uuid:
        detail = "datasetName and datasetUUID can not be specified simultaneously"
        errors.append(fields.invalid(path, "resource", detail))
    if "/" in name:
        errors.append(fields.invalid(f"{path}.datasetName", name, "must not contain '/'"))


def check_quobyte(source: Object, path: str, errors: Errors) -> None:
    registry = source.get("registry", "")
    if not registry:
        errors.append(fields.required(f"{path}.registry", _HOST_AND_PORT))
    elif len(source.get("tenant", "")) > _TENANT_LENGTH:
        detail = f"must be a UUID and may not exceed a length of {_TENANT_LENGTH} characters"
        errors.append(fields.required(f"{path}.tenant", detail))
    else:
        wrong = [pair for pair in registry.split(",") if not _is_host_and_port(pair)]
        errors += [fields.invalid(f"{path}.registry", registry, _HOST_AND_PORT) for _ in wrong]
    rules.required_keys(errors, source, ("volume",), path)


def _is_host_and_port(pair: str) -> bool:
    host, colon, _ = pair.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    return bool(colon) and (bracketed or not set(host) & set(":[]"))


def _check_flex(source: Object, path: str, errors: Errors) -> None:
    rules.required_keys(errors, source, ("driver",), path)
    for key in source.get("options") or ():
        domain = f".{key.partition('/')[0].lower()}"
        if domain.endswith((".kubernetes.io", ".k8s.io")):
            detail = "kubernetes.io and k8s.io namespaces are reserved"
            errors.append(fields.invalid(f"{path}.options[{key}]", key, detail))


def _check_azure_disk(source: Object, path: str, errors: Errors) -> None:
    rules.required_keys(errors, source, ("diskName", "diskURI"), path)
    if (mode := source.get("cachingMode")) is not None:
        rules.one_of(errors, f"{path}.cachingMode", mode, _CACHING_MODES)
    kind, uri = source.get("kind"), source.get("diskURI", "")
    if kind is None:
        return
    rules.one_of(errors, f"{path}.kind", kind, _DISK_KINDS)
    if kind == "Managed" and not uri.startswith("/subscriptions/"):
        errors.append(fields.not_supported(f"{path}.diskURI", uri, (_MANAGED_DISK,)))
    if kind != "Managed" and not uri.startswith("https://"):
        errors.append(fields.not_supported(f"{path}.diskURI", uri, (_BLOB_DISK,)))


def _check_cinder(source: Object, path: str, errors: Errors) -> None:
    rules.required_keys(errors, source, ("volumeID",), path)
    _check_secret_ref(source, path, errors)


def _check_secret_ref(source: Object, path: str, errors: Errors) -> None:
    if (reference := source.get("secretRef")) is not None and not reference.get("name"):
        errors.append(fields.required(f"{path}.secretRef.name"))


def _check_storage_os(source: Object, path: str, errors: Errors) -> None:
    name, space = source.get("volumeName", ""), source.get("volumeNamespace", "")
    rules.required_name(errors, f"{path}.volumeName", name, names.dns_label)
    if space:
        rules.named(errors, f"{path}.volumeNamespace", space, names.dns_label)
    _check_secret_ref(source, path, errors)


def _check_csi(source: Object, path: str, errors: Errors) -> None:
    check_driver(source.get("driver", ""), f"{path}.driver", errors)
    if (reference := source.get("nodePublishSecretRef")) is None:
        return
    if name := reference.get("name"):
        rules.named(errors, f"{path}.name", name, names.dns_subdomain)
    else:
        errors.append(fields.required(f"{path}.nodePublishSecretRef.name"))


def check_driver(driver: str, path: str, errors: Errors) -> None:
    """The name of a CSI driver."""
    if not driver:
        errors.append(fields.required(path))
        return
    if names.longer(driver, _CSI_DRIVER_LENGTH):
        errors.append(fields.too_long(path, _CSI_DRIVER_LENGTH))
    errors += fields.invalid_each(path, driver, names.dns_subdomain(driver.lower()))


def _check_ephemeral(source: Object, path: str, errors: Errors) -> None:
    where = f"{path}.volumeClaimTemplate"
    if (template := source.get("volumeClaimTemplate")) is None:
        errors.append(fields.required(where))
    else:
        check_claim_template(template, where, errors)


def _check_image(source: Object, path: str, errors: Errors) -> None:
    policy = source.get("pullPolicy", "")
    rules.required_one_of(errors, f"{path}.pullPolicy", policy, PULL_POLICIES)


# In the order in which they are looked at: the first one given is the volume's
# source and all others are one too many. With each the name that mistakes in
# it are reported under.
_SOURCES: dict[str, tuple[SourceCheck, str]] = {
    "emptyDir": (_check_empty_dir, "emptyDir"),
    "hostPath": (_check_host_path, "hostPath"),
    "gitRepo": (_check_git_repo, "gitRepo"),
    "gcePersistentDisk": (_check_disk("pdName"), "persistentDisk"),
    "awsElasticBlockStore": (_check_disk("volumeID"), "awsElasticBlockStore"),
    "secret": (projected.check_secret, "secret"),
    "nfs": (_check_nfs, "nfs"),
    "iscsi": (_check_iscsi, "iscsi"),
    "glusterfs": (_requires("endpoints", "path"), "glusterfs"),
    "flocker": (_check_flocker, "flocker"),
    "persistentVolumeClaim": (_requires("claimName"), "persistentVolumeClaim"),
    "rbd": (_requires("monitors", "image"), "rbd"),
    "cinder": (_check_cinder, "cinder"),
    "cephfs": (_requires("monitors"), "cephfs"),
    "quobyte": (check_quobyte, "quobyte"),
    "downwardAPI": (projected.check_downward_api, "downwardAPI"),
    "fc": (_check_fibre_channel, "fc"),
    "flexVolume": (_check_flex, "flexVolume"),
    "configMap": (projected.check_config_map, "configMap"),
    "azureFile": (_requires("secretName", "shareName"), "azureFile"),
    "vsphereVolume": (_requires("volumePath"), "vsphereVolume"),
    "photonPersistentDisk": (_requires("pdID"), "photonPersistentDisk"),
    "portworxVolume": (_requires("volumeID"), "portworxVolume"),
    "azureDisk": (_check_azure_disk, "azureDisk"),
    "storageos": (_check_storage_os, "storageos"),
    "projected": (projected.check_projected, "projected"),
    "scaleIO": (_requires("gateway", "system", "volumeName"), "scaleIO"),
    "csi": (_check_csi, "csi"),
    "ephemeral": (_check_ephemeral, "ephemeral"),
    "image": (_check_image, "image"),
}

_ORDER = tuple(_SOURCES)

# Names that Kubernetes spells in another way where a source is one too many.
_REPEATED_AS = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}
