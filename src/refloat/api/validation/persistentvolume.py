# SPDX-License-Identifier: Apache-2.0
"""What a PersistentVolume must be; the place of its data never changes."""

import posixpath
from functools import partial

from refloat.api import go_internal_types, names, quantity
from refloat.api import meta as objects
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import meta, pod_affinity, rules, volume_sources
from refloat.api.validation.rules import Errors
from refloat.api.validation.volume_sources import SourceCheck, requires

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
RECLAIM_POLICIES = ("Delete", "Recycle", "Retain")
VOLUME_MODES = ("Block", "Filesystem")
MOUNT_OPTIONS_ANNOTATION = "volume.beta.kubernetes.io/mount-options"
CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"

_RENAMED_LABELS = {
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
}
_INLINE = "may not be specified in the context of inline volumes"


def validate_create(volume: Object) -> list[FieldError]:
    errors = _volume_errors(volume)
    _check_mount_options(volume, errors)
    return errors


def validate_update(new: Object, old: Object) -> list[FieldError]:
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    own = _volume_errors(new)
    errors = meta.validate_common_update(new["metadata"], old["metadata"])
    errors += own
    _check_mount_options(new, errors)
    errors += own
    csi, old_csi = spec.get("csi"), before.get("csi")
    source = spec
    if csi and old_csi and old_csi.get("controllerExpandSecretRef") is None:
        # An update may add this secret.
        source = spec | {"csi": csi | {"controllerExpandSecretRef": None}}
    kind = "core.PersistentVolumeSource"
    if not go_internal_types.equal(kind, source, before):
        detail = "spec.persistentvolumesource is immutable after creation\n"
        detail += go_internal_types.diff(kind, before, source)
        errors.forbidden("spec.persistentvolumesource", detail)
    errors.immutable("volumeMode", spec.get("volumeMode"), before.get("volumeMode"))
    _check_node_affinity_change(spec.get("nodeAffinity"), before.get("nodeAffinity"), errors)
    name = "volumeAttributesClassName"
    if spec.get(name) is None and before.get(name) is not None:
        errors.forbidden(f"spec.{name}", "update from non-nil value to nil is forbidden")
    return errors


def validate_status_update(new: Object, old: Object) -> list[FieldError]:
    errors = meta.validate_update(new["metadata"], old["metadata"])
    if not new["metadata"].get("resourceVersion"):
        errors.required("resourceVersion")
    return errors


def check_inline(spec: Object, path: str, errors: Errors) -> None:
    """A volume described inside a VolumeAttachment: CSI only, and no claim."""
    for name in ("claimRef", "capacity"):
        if spec.get(name):
            errors.forbidden(f"{path}.{name}", _INLINE)
    if spec.get("csi") is None:
        errors.required(f"{path}.csi", "has to be specified in the context of inline volumes")
    check_access_modes(spec, path, errors)
    if spec.get("persistentVolumeReclaimPolicy") not in (None, "", "Retain"):
        detail = "may only be Retain in the context of inline volumes"
        errors.forbidden(f"{path}.persistentVolumeReclaimPolicy", detail)
    if spec.get("nodeAffinity") is not None:
        errors.forbidden(f"{path}.nodeAffinity", _INLINE)
    _check_sources(spec, path, errors)
    if spec.get("storageClassName"):
        errors.forbidden(f"{path}.storageClassName", _INLINE)
    if spec.get("volumeMode") not in (None, "Filesystem"):
        detail = "may not specify volumeMode other than Filesystem in the context of inline volumes"
        errors.forbidden(f"{path}.volumeMode", detail)


def _volume_errors(volume: Object) -> Errors:
    spec, path = volume.get("spec") or {}, "spec"
    errors = meta.validate(volume["metadata"], namespaced=False, name_check=names.dns_subdomain)
    check_access_modes(spec, path, errors)
    capacity = spec.get("capacity") or {}
    if not capacity:
        errors.required("spec.capacity")
    if list(capacity) != ["storage"]:
        value_text = go_internal_types.shown("{}quantity", capacity or None)
        errors.not_supported("spec.capacity", value_text, ("storage",))
    for name, amount in capacity.items():
        check_int64_amount(amount, f"spec.capacity[{name}]", errors)
        errors.positive_amount(f"spec.capacity[{name}]", amount)
    policy, policy_path = (
        spec.get("persistentVolumeReclaimPolicy"),
        "spec.persistentVolumeReclaimPolicy",
    )
    errors.one_of(policy_path, policy or None, RECLAIM_POLICIES)
    if (affinity := spec.get("nodeAffinity")) is not None:
        selector, where = affinity.get("required"), "spec.nodeAffinity.required"
        if selector is None:
            errors.required(where, "must specify required node constraints")
        else:
            pod_affinity.check_node_selector(selector, where, errors)
    _check_sources(spec, path, errors)
    directory = (spec.get("hostPath") or {}).get("path") or ""
    if policy == "Recycle" and posixpath.normpath(directory) in ("/", "//"):
        errors.forbidden(policy_path, "may not be 'recycle' for a hostPath mount of '/'")
    _check_classes(spec, errors)
    return errors


def _check_classes(spec: Object, errors: Errors) -> None:
    if name := spec.get("storageClassName"):
        errors.named("spec.storageClassName", name, names.dns_subdomain)
    errors.one_of("spec.volumeMode", spec.get("volumeMode"), VOLUME_MODES)
    if (name := spec.get("volumeAttributesClassName")) is not None:
        if name:
            errors.named("spec.volumeAttributesClassName", name, names.dns_subdomain)
        else:
            errors.required("spec.volumeAttributesClassName", "an empty string is disallowed")
        if spec.get("csi") is None:
            errors.required("spec.csi", "has to be specified when using volumeAttributesClassName")


def check_access_modes(spec: Object, path: str, errors: Errors) -> None:
    """The modes of a volume; `ReadWriteOncePod` stands alone."""
    modes = spec.get("accessModes") or []
    if not modes:
        errors.required(f"{path}.accessModes")
    check_known_modes(modes, f"{path}.accessModes", errors)


def check_known_modes(modes: list[str], path: str, errors: Errors) -> None:
    for mode in modes:
        errors.one_of(path, mode, ACCESS_MODES)
    others = [mode for mode in modes if mode in ACCESS_MODES and mode != "ReadWriteOncePod"]
    if others and "ReadWriteOncePod" in modes:
        errors.forbidden(path, "may not use ReadWriteOncePod with other access modes")


def check_int64_amount(amount: str, path: str, errors: Errors) -> None:
    if (value := quantity.int_value(amount)) < 0:
        errors.invalid(path, value, "must be a valid resource quantity")


def _check_sources(spec: Object, path: str, errors: Errors) -> None:
    has_source = False
    for name, check in _SOURCES.items():
        source = spec.get(name)
        if source is None:
            continue
        if has_source and name != "flexVolume":
            extra = "cephFS" if name == "cephfs" else name
            errors.forbidden(f"{path}.{extra}", "may not specify more than 1 volume type")
            continue
        has_source = True
        check(source, f"{path}.{volume_sources.LABELS.get(name, name)}", errors)
        if name == "local" and spec.get("nodeAffinity") is None:
            errors.required(f"{path}.nodeAffinity", "Local volume requires node affinity")
    if not has_source:
        errors.required(path, "must specify a volume type")


def _check_csi(source: Object, path: str, errors: Errors) -> None:
    volume_sources.check_csi_driver(source.get("driver", ""), f"{path}.driver", errors)
    errors.required_keys(source, ("volumeHandle",), path)
    for name in ("controllerPublish", "controllerExpand", "nodePublish", "nodeExpand"):
        if (secret := source.get(f"{name}SecretRef")) is not None:
            where, namespace = f"{path}.{name}SecretRef", secret.get("namespace", "")
            errors.required_name(f"{where}.name", secret.get("name", ""), names.dns_subdomain)
            errors.required_name(f"{where}.namespace", namespace, names.dns_label)


_SECRET = ("name", "namespace")

# In the order in which Kubernetes checks them.
_SOURCES: dict[str, SourceCheck] = {
    "hostPath": volume_sources.check_host_path,
    "gcePersistentDisk": volume_sources.check_gce_disk,
    "awsElasticBlockStore": volume_sources.check_aws_disk,
    "glusterfs": volume_sources.check_glusterfs,
    "flocker": volume_sources.check_flocker,
    "nfs": volume_sources.check_nfs,
    "rbd": requires("monitors", "image"),
    "quobyte": volume_sources.check_quobyte,
    "cephfs": requires("monitors"),
    "iscsi": partial(volume_sources.check_iscsi, persistent=True),
    "cinder": partial(volume_sources.check_cinder, secret=_SECRET),
    "fc": volume_sources.check_fibre_channel,
    "flexVolume": requires("driver"),
    "azureFile": volume_sources.check_azure_file,
    "vsphereVolume": requires("volumePath"),
    "photonPersistentDisk": requires("pdID"),
    "portworxVolume": requires("volumeID"),
    "azureDisk": volume_sources.check_azure_disk,
    "scaleIO": requires("gateway", "system", "volumeName"),
    "local": volume_sources.check_local,
    "storageos": partial(volume_sources.check_storage_os, secret=_SECRET),
    "csi": _check_csi,
}

# The system's own tools mount these, and the tools have options.
_MOUNTED = frozenset(_SOURCES) - {
    *("hostPath", "flocker", "fc", "flexVolume", "portworxVolume", "scaleIO"),
    *("local", "storageos", "csi"),
}


def _check_mount_options(volume: Object, errors: Errors) -> None:
    spec = volume.get("spec") or {}
    has_options = MOUNT_OPTIONS_ANNOTATION in objects.annotations(volume)
    if has_options and all(spec.get(name) is None for name in _MOUNTED):
        path = f"metadata.annotations.{MOUNT_OPTIONS_ANNOTATION}"
        errors.forbidden(path, "may not specify mount options for this volume type")


def _check_node_affinity_change(new: Object | None, old: Object | None, errors: Errors) -> None:
    kind = "*core.VolumeNodeAffinity"
    if old is None or go_internal_types.equal(kind, new, old):
        return
    # The old affinity, with the present names of labels.
    required = old.get("required") or {}
    terms = [
        term
        | {
            "matchExpressions": [
                each | {"key": _RENAMED_LABELS.get(each.get("key", ""), each.get("key", ""))}
                for each in term.get("matchExpressions") or ()
            ]
        }
        for term in required.get("nodeSelectorTerms") or ()
    ]
    renamed = {"required": required | {"nodeSelectorTerms": terms}}
    if not go_internal_types.equal(kind, new, renamed):
        detail = f"{rules.IMMUTABLE}, except for updating from beta label to GA"
        errors.invalid("nodeAffinity", go_internal_types.shown(kind, new), detail)


_DEPRECATED_ANNOTATIONS = {
    CLASS_ANNOTATION: 'deprecated since v1.8; use "storageClassName" attribute instead',
    MOUNT_OPTIONS_ANNOTATION: 'deprecated since v1.31; use "mountOptions" attribute instead',
}
_DEPRECATED_SOURCES = ["cephfs", "photonPersistentDisk", "scaleIO", "storageos", "glusterfs", "rbd"]


def warnings(volume: Object) -> list[str]:
    """Warnings about a valid volume."""
    annotations, spec = objects.annotations(volume), volume.get("spec") or {}
    texts = [
        f"metadata.annotations[{key}]: {text}"
        for key, text in _DEPRECATED_ANNOTATIONS.items()
        if key in annotations
    ]
    if spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        texts.append(
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. "
            "Instead, the recommended approach is to use dynamic provisioning."
        )
    for name in _DEPRECATED_SOURCES:
        if spec.get(name) is not None:
            label = volume_sources.DEPRECATED_LABELS.get(name, name)
            texts.append(f"spec.{label}: {volume_sources.DEPRECATED[name]}")
    return texts
