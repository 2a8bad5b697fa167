# SPDX-License-Identifier: Apache-2.0
"""The sources of volumes that pods and PersistentVolumes have in common.

A PersistentVolume's secrets also have a namespace, and its iSCSI names have an error
of their own. `pod_volumes.py` and `persistentvolume.py` have the order of the sources.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from refloat.api import names
from refloat.api.meta import Object
from refloat.api.validation.rules import Errors

SourceCheck: TypeAlias = Callable[[Object, str, Errors], None]

HOST_PATH_TYPES = (
    *("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate"),
    *("File", "FileOrCreate", "Socket"),
)
MAX_DRIVER = 63
MAX_PARTITION = 255
AZURE_CACHING_MODES = ("None", "ReadOnly", "ReadWrite")
AZURE_KINDS = ("Dedicated", "Managed", "Shared")
LABELS = {"gcePersistentDisk": "persistentDisk"}
"""The names of sources in paths, where they are not the names of the fields."""

DEPRECATED = {
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
}
DEPRECATED_LABELS = {"storageos": "storageOS"}

_AZURE_MANAGED = (
    "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/"
    "disks/{disk-id}"
)
_AZURE_BLOB = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
_INITIATORS = {
    "iqn": re.compile(r"iqn\.[0-9]{4}-[0-9]{2}\.[A-Za-z0-9\-.]+:[^,;*&$|\s]+\Z").search,
    "eui": re.compile(r"eui.[A-Za-z0-9]{16}").fullmatch,
    "naa": re.compile(r"naa.[A-Za-z0-9]{32}").fullmatch,
}
_TENANT_LENGTH = 64
_HOST_AND_PORT = "must be a host:port pair or multiple pairs separated by commas"


def requires(*keys: str) -> SourceCheck:
    """A source without rules but for its required fields."""

    def check(source: Object, path: str, errors: Errors) -> None:
        errors.required_keys(source, keys, path)

    return check


def check_local(source: Object, path: str, errors: Errors) -> None:
    errors.required_keys(source, ("path",), path)
    errors.no_backsteps(f"{path}.path", source.get("path", ""))


def check_host_path(source: Object, path: str, errors: Errors) -> None:
    check_local(source, path, errors)
    if source.get("path"):
        errors.one_of(f"{path}.type", source.get("type"), HOST_PATH_TYPES)


def _check_disk(source: Object, path: str, errors: Errors, *, key: str) -> None:
    errors.required_keys(source, (key,), path)
    if not 0 <= (partition := source.get("partition", 0)) <= MAX_PARTITION:
        errors.invalid(f"{path}.partition", partition, names.inclusive_range(1, MAX_PARTITION))


check_gce_disk = partial(_check_disk, key="pdName")
check_aws_disk = partial(_check_disk, key="volumeID")


def check_glusterfs(source: Object, path: str, errors: Errors) -> None:
    errors.required_keys(source, ("endpoints", "path"), path)
    namespace = source.get("endpointsNamespace")
    if namespace == "":
        detail = "if the endpointnamespace is set, it must be a valid namespace name"
        errors.invalid(f"{path}.endpointsNamespace", namespace, detail)
    elif namespace is not None:
        errors.named(f"{path}.endpointsNamespace", namespace, names.dns_label)


def check_flocker(source: Object, path: str, errors: Errors) -> None:
    name, uid = source.get("datasetName", ""), source.get("datasetUUID", "")
    if not name and not uid:
        errors.required(path, "one of datasetName and datasetUUID is required")
    if name and uid:
        detail = "datasetName and datasetUUID can not be specified simultaneously"
        errors.invalid(path, "resource", detail)
    if "/" in name:
        errors.invalid(f"{path}.datasetName", name, "must not contain '/'")


def check_nfs(source: Object, path: str, errors: Errors) -> None:
    errors.required_keys(source, ("server", "path"), path)
    if not (directory := source.get("path", "")).startswith("/"):
        errors.invalid(f"{path}.path", directory, "must be an absolute path")


def check_quobyte(source: Object, path: str, errors: Errors) -> None:
    registry = source.get("registry", "")
    if not registry:
        errors.required(f"{path}.registry", _HOST_AND_PORT)
    elif len(source.get("tenant", "")) > _TENANT_LENGTH:
        detail = f"must be a UUID and may not exceed a length of {_TENANT_LENGTH} characters"
        errors.required(f"{path}.tenant", detail)
    else:
        for pair in registry.split(","):
            host, colon, _ = pair.rpartition(":")
            is_bracketed = host.startswith("[") and host.endswith("]")
            if not colon or not (is_bracketed or set(host).isdisjoint(":[]")):
                errors.invalid(f"{path}.registry", registry, _HOST_AND_PORT)
    errors.required_keys(source, ("volume",), path)


def check_iscsi(source: Object, path: str, errors: Errors, *, persistent: bool = False) -> None:
    errors.required_keys(source, ("targetPortal", "iqn"), path)
    if target := source.get("iqn"):
        _check_initiator(target, f"{path}.iqn", errors, persistent=persistent)
    lun = source.get("lun", 0)
    errors.each(f"{path}.lun", lun, names.in_range(lun, 0, 255))
    secret = source.get("secretRef")
    if secret is not None and persistent:
        errors.required_keys(secret, ("name",), f"{path}.secretRef")
    elif secret is None and (source.get("chapAuthDiscovery") or source.get("chapAuthSession")):
        errors.required(f"{path}.secretRef")
    if (initiator := source.get("initiatorName")) is not None:
        _check_initiator(initiator, f"{path}.initiatorname", errors, persistent=persistent)


def _check_initiator(name: str, path: str, errors: Errors, *, persistent: bool) -> None:
    """The name of an iSCSI initiator or target, in one of the three forms."""
    matches = _INITIATORS.get(name[:3])
    if matches is None and not persistent:
        errors.invalid(path, name, "must be valid format starting with iqn, eui, or naa")
    elif matches is None or not matches(name):
        errors.invalid(path, name, "must be valid format")


def check_fibre_channel(source: Object, path: str, errors: Errors) -> None:
    targets, wwids, lun = (source.get(name) for name in ("targetWWNs", "wwids", "lun"))
    if not targets and not wwids:
        detail = "must specify either targetWWNs or wwids, but not both"
        errors.required(f"{path}.targetWWNs", detail)
    if targets and wwids:
        detail = "targetWWNs and wwids can not be specified simultaneously"
        errors.invalid(f"{path}.targetWWNs", targets, detail)
    if targets and lun is None:
        errors.required(f"{path}.lun", "lun is required if targetWWNs is specified")
    elif targets and lun is not None:
        errors.each(f"{path}.lun", lun, names.in_range(lun, 0, 255))


def check_azure_file(source: Object, path: str, errors: Errors) -> None:
    errors.required_keys(source, ("secretName", "shareName"), path)
    if source.get("secretNamespace") == "":
        errors.required(f"{path}.secretNamespace")


def check_azure_disk(source: Object, path: str, errors: Errors) -> None:
    errors.required_keys(source, ("diskName", "diskURI"), path)
    errors.one_of(f"{path}.cachingMode", source.get("cachingMode"), AZURE_CACHING_MODES)
    kind, uri = source.get("kind"), source.get("diskURI", "")
    errors.one_of(f"{path}.kind", kind, AZURE_KINDS)
    form, start = _AZURE_BLOB, "https://"
    if kind == "Managed":
        form, start = _AZURE_MANAGED, "/subscriptions/"
    if kind is not None and not uri.startswith(start):
        errors.not_supported(f"{path}.diskURI", uri, (form,))


def check_cinder(
    source: Object, path: str, errors: Errors, *, secret: tuple[str, ...] = ("name",)
) -> None:
    """`secret` has the required fields of the source's secret."""
    errors.required_keys(source, ("volumeID",), path)
    if (reference := source.get("secretRef")) is not None:
        errors.required_keys(reference, secret, f"{path}.secretRef")


def check_storage_os(
    source: Object, path: str, errors: Errors, *, secret: tuple[str, ...] = ("name",)
) -> None:
    name, namespace = source.get("volumeName", ""), source.get("volumeNamespace", "")
    errors.required_name(f"{path}.volumeName", name, names.dns_label)
    if namespace:
        errors.named(f"{path}.volumeNamespace", namespace, names.dns_label)
    if (reference := source.get("secretRef")) is not None:
        errors.required_keys(reference, secret, f"{path}.secretRef")


def check_csi_driver(name: str, path: str, errors: Errors) -> None:
    """The name of a CSI driver, in which capital letters are valid."""
    if name:
        errors.too_long(path, name, MAX_DRIVER)
        errors.each(path, name, names.dns_subdomain(name.lower()))
    else:
        errors.required(path)
