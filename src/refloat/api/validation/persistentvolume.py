# SPDX-License-Identifier: Apache-2.0
"""What a PersistentVolume must be; where its data lies never changes."""

import posixpath
from collections.abc import Callable
from typing import TypeAlias

from refloat.api import fields, internal, names, quantity
from refloat.api import meta as objects
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import meta, pod_affinity, pod_rules, pod_volumes, rules

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
RECLAIM_POLICIES = ("Delete", "Recycle", "Retain")
VOLUME_MODES = ("Block", "Filesystem")
HOST_PATH_TYPES = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
MAX_DRIVER = 63
MAX_PARTITION = 255
AZURE_CACHING_MODES = ("None", "ReadOnly", "ReadWrite")
AZURE_KINDS = ("Dedicated", "Managed", "Shared")
_FORMAT = "must be valid format"
_AZURE_MANAGED = (
    "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/"
    "disks/{disk-id}"
)
_AZURE_BLOB = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
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
_ONE_TYPE = "may not specify more than 1 volume type"

Check: TypeAlias = Callable[[Object, str], list[FieldError]]


def validate_create(volume: Object) -> list[FieldError]:
    mistakes = meta.validate(volume["metadata"], namespaced=False, name_check=names.dns_subdomain)
    mistakes += _spec(volume.get("spec") or {}, "spec")
    return mistakes + _mount_options(volume)


def validate_update(new: Object, old: Object) -> list[FieldError]:
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    own = meta.validate(new["metadata"], namespaced=False, name_check=names.dns_subdomain)
    own += _spec(spec, "spec")
    return [
        *meta.validate_common_update(new["metadata"], old["metadata"]),
        *own,
        *_mount_options(new),
        *own,
        *_source_change(spec, before),
        *rules.immutable(spec.get("volumeMode"), before.get("volumeMode"), "volumeMode"),
        *_node_affinity_change(spec.get("nodeAffinity"), before.get("nodeAffinity")),
        *_attributes_class_change(spec, before),
    ]


def validate_status_update(new: Object, old: Object) -> list[FieldError]:
    mistakes = meta.validate_update(new["metadata"], old["metadata"])
    if not new["metadata"].get("resourceVersion"):
        mistakes.append(fields.required("resourceVersion"))
    return mistakes


def validate_inline(spec: Object, path: str) -> list[FieldError]:
    """A volume described inside a VolumeAttachment: CSI only, and no claim."""
    mistakes = [
        fields.forbidden(f"{path}.{name}", _INLINE)
        for name in ("claimRef", "capacity")
        if spec.get(name)
    ]
    if spec.get("csi") is None:
        detail = "has to be specified in the context of inline volumes"
        mistakes.append(fields.required(f"{path}.csi", detail))
    mistakes += access_modes(spec, path, "")
    if spec.get("persistentVolumeReclaimPolicy") not in (None, "", "Retain"):
        detail = "may only be Retain in the context of inline volumes"
        mistakes.append(fields.forbidden(f"{path}.persistentVolumeReclaimPolicy", detail))
    if spec.get("nodeAffinity") is not None:
        mistakes.append(fields.forbidden(f"{path}.nodeAffinity", _INLINE))
    mistakes += _sources(spec, path)
    if spec.get("storageClassName"):
        mistakes.append(fields.forbidden(f"{path}.storageClassName", _INLINE))
    if spec.get("volumeMode") not in (None, "Filesystem"):
        detail = "may not specify volumeMode other than Filesystem in the context of inline volumes"
        mistakes.append(fields.forbidden(f"{path}.volumeMode", detail))
    return mistakes


def _spec(spec: Object, path: str) -> list[FieldError]:
    return [
        *access_modes(spec, path, ""),
        *_capacity(spec.get("capacity") or {}, f"{path}.capacity"),
        *_reclaim_policy(spec, f"{path}.persistentVolumeReclaimPolicy"),
        *_node_affinity(spec.get("nodeAffinity"), f"{path}.nodeAffinity"),
        *_sources(spec, path),
        *_recycled_root(spec, path),
        *class_name(spec.get("storageClassName", ""), f"{path}.storageClassName"),
        *volume_mode(spec.get("volumeMode"), f"{path}.volumeMode"),
        *_attributes_class(spec, path),
    ]


def access_modes(spec: Object, path: str, missing: str) -> list[FieldError]:
    """Of a volume or a claim; one that only one pod may use is that alone."""
    path = f"{path}.accessModes"
    modes = spec.get("accessModes") or []
    mistakes = [] if modes else [fields.required(path, missing)]
    mistakes += [
        rules.unsupported(path, mode, ACCESS_MODES) for mode in modes if mode not in ACCESS_MODES
    ]
    others = [mode for mode in modes if mode in ACCESS_MODES and mode != "ReadWriteOncePod"]
    if others and "ReadWriteOncePod" in modes:
        detail = "may not use ReadWriteOncePod with other access modes"
        mistakes.append(fields.forbidden(path, detail))
    return mistakes


def _capacity(capacity: dict[str, str], path: str) -> list[FieldError]:
    mistakes = [] if capacity else [fields.required(path)]
    if list(capacity) != ["storage"]:
        shown = internal.shown("{}quantity", capacity or None)
        mistakes.append(fields.not_supported(path, shown, ("storage",)))
    for name, amount in capacity.items():
        mistakes += basic_quantity(amount, f"{path}[{name}]")
        mistakes += rules.positive_quantity(amount, f"{path}[{name}]")
    return mistakes


def basic_quantity(amount: str, path: str) -> list[FieldError]:
    value = quantity.int_value(amount)
    return [] if value >= 0 else [fields.invalid(path, value, "must be a valid resource quantity")]


def _reclaim_policy(spec: Object, path: str) -> list[FieldError]:
    policy = spec.get("persistentVolumeReclaimPolicy")
    if not policy or policy in RECLAIM_POLICIES:
        return []
    return [rules.unsupported(path, policy, RECLAIM_POLICIES)]


def _node_affinity(affinity: Object | None, path: str) -> list[FieldError]:
    if affinity is None:
        return []
    if affinity.get("required") is None:
        return [fields.required(f"{path}.required", "must specify required node constraints")]
    mistakes: list[FieldError] = []
    pod_affinity.check_node_selector(affinity["required"], f"{path}.required", mistakes)
    return mistakes


def _sources(spec: Object, path: str) -> list[FieldError]:
    mistakes = []
    found = False
    for name, label, check in _SOURCES:
        source = spec.get(name)
        if source is None:
            continue
        if found and name != "flexVolume":
            shown = "cephFS" if name == "cephfs" else name
            mistakes.append(fields.forbidden(f"{path}.{shown}", _ONE_TYPE))
            continue
        found = True
        mistakes += check(source, f"{path}.{label}")
        if name == "local" and spec.get("nodeAffinity") is None:
            detail = "Local volume requires node affinity"
            mistakes.append(fields.required(f"{path}.nodeAffinity", detail))
    if not found:
        mistakes.append(fields.required(path, "must specify a volume type"))
    return mistakes


def _needs(*required: str) -> Check:
    def check(source: Object, path: str) -> list[FieldError]:
        return [fields.required(f"{path}.{name}") for name in required if not source.get(name)]

    return check


def _host_path(source: Object, path: str) -> list[FieldError]:
    mistakes = _local(source, path)
    kind = source.get("type")
    if source.get("path") and kind is not None and kind not in HOST_PATH_TYPES:
        mistakes.append(rules.unsupported(f"{path}.type", kind, HOST_PATH_TYPES))
    return mistakes


def _local(source: Object, path: str) -> list[FieldError]:
    if not source.get("path"):
        return [fields.required(f"{path}.path")]
    mistakes: list[FieldError] = []
    pod_rules.no_backsteps(mistakes, f"{path}.path", source["path"])
    return mistakes


def _nfs(source: Object, path: str) -> list[FieldError]:
    mistakes = _needs("server", "path")(source, path)
    directory = source.get("path", "")
    if not directory.startswith("/"):
        detail = "must be an absolute path"
        mistakes.append(fields.invalid(f"{path}.path", directory, detail))
    return mistakes


def _cloud_disk(name: str) -> Check:
    def check(source: Object, path: str) -> list[FieldError]:
        mistakes = _needs(name)(source, path)
        partition = source.get("partition", 0)
        if not 0 <= partition <= MAX_PARTITION:
            detail = names.inclusive_range(1, MAX_PARTITION)
            mistakes.append(fields.invalid(f"{path}.partition", partition, detail))
        return mistakes

    return check


def _csi(source: Object, path: str) -> list[FieldError]:
    mistakes = csi_driver(source.get("driver", ""), f"{path}.driver")
    mistakes += _needs("volumeHandle")(source, path)
    for name in ("controllerPublish", "controllerExpand", "nodePublish", "nodeExpand"):
        secret = source.get(f"{name}SecretRef")
        if secret is not None:
            mistakes += _secret(secret, f"{path}.{name}SecretRef")
    return mistakes


def _secret(secret: Object, path: str) -> list[FieldError]:
    mistakes: list[FieldError] = []
    pod_rules.required_name(mistakes, f"{path}.name", secret.get("name", ""), names.dns_subdomain)
    namespace = secret.get("namespace", "")
    pod_rules.required_name(mistakes, f"{path}.namespace", namespace, names.dns_label)
    return mistakes


def csi_driver(name: str, path: str) -> list[FieldError]:
    """A driver's name; capital letters are forgiven."""
    if not name:
        return [fields.required(path)]
    mistakes = [fields.too_long(path, MAX_DRIVER)] if names.longer(name, MAX_DRIVER) else []
    return mistakes + rules.named(names.dns_subdomain(name.lower()), path, name)


def _cinder(source: Object, path: str) -> list[FieldError]:
    mistakes = _needs("volumeID")(source, path)
    secret = source.get("secretRef")
    if secret is not None:
        mistakes += _needs("name", "namespace")(secret, f"{path}.secretRef")
    return mistakes


def _flocker(source: Object, path: str) -> list[FieldError]:
    name, uid = source.get("datasetName", ""), source.get("datasetUUID", "")
    mistakes = []
    if not name and not uid:
        mistakes.append(fields.required(path, "one of datasetName and datasetUUID is required"))
    if name and uid:
        detail = "datasetName and datasetUUID can not be specified simultaneously"
        mistakes.append(fields.invalid(path, "resource", detail))
    if "/" in name:
        mistakes.append(fields.invalid(f"{path}.datasetName", name, "must not contain '/'"))
    return mistakes


def _fibre_channel(source: Object, path: str) -> list[FieldError]:
    targets, ids, lun = (source.get(name) for name in ("targetWWNs", "wwids", "lun"))
    mistakes = []
    if not targets and not ids:
        detail = "must specify either targetWWNs or wwids, but not both"
        mistakes.append(fields.required(f"{path}.targetWWNs", detail))
    if targets and ids:
        detail = "targetWWNs and wwids can not be specified simultaneously"
        mistakes.append(fields.invalid(f"{path}.targetWWNs", targets, detail))
    if targets and lun is None:
        detail = "lun is required if targetWWNs is specified"
        mistakes.append(fields.required(f"{path}.lun", detail))
    elif targets and lun is not None:
        mistakes += rules.named(names.in_range(lun, 0, 255), f"{path}.lun", lun)
    return mistakes


def _quobyte(source: Object, path: str) -> list[FieldError]:
    mistakes: list[FieldError] = []
    pod_volumes.check_quobyte(source, path, mistakes)
    return mistakes


def _iscsi(source: Object, path: str) -> list[FieldError]:
    mistakes = _needs("targetPortal", "iqn")(source, path)
    if (target := source.get("iqn")) and not pod_volumes.is_initiator(target):
        mistakes.append(fields.invalid(f"{path}.iqn", target, _FORMAT))
    lun = source.get("lun", 0)
    mistakes += rules.named(names.in_range(lun, 0, 255), f"{path}.lun", lun)
    secret = source.get("secretRef")
    if secret is not None:
        mistakes += _needs("name")(secret, f"{path}.secretRef")
    elif source.get("chapAuthDiscovery") or source.get("chapAuthSession"):
        mistakes.append(fields.required(f"{path}.secretRef"))
    initiator = source.get("initiatorName")
    if initiator is not None and not pod_volumes.is_initiator(initiator):
        mistakes.append(fields.invalid(f"{path}.initiatorname", initiator, _FORMAT))
    return mistakes


def _glusterfs(source: Object, path: str) -> list[FieldError]:
    mistakes = _needs("endpoints", "path")(source, path)
    if (space := source.get("endpointsNamespace")) is None:
        return mistakes
    path = f"{path}.endpointsNamespace"
    if not space:
        detail = "if the endpointnamespace is set, it must be a valid namespace name"
        return [*mistakes, fields.invalid(path, space, detail)]
    return mistakes + rules.named(names.dns_label(space), path, space)


def _azure_file(source: Object, path: str) -> list[FieldError]:
    mistakes = _needs("secretName", "shareName")(source, path)
    if source.get("secretNamespace") == "":
        mistakes.append(fields.required(f"{path}.secretNamespace"))
    return mistakes


def _azure_disk(source: Object, path: str) -> list[FieldError]:
    mistakes = _needs("diskName", "diskURI")(source, path)
    for name, allowed in (("cachingMode", AZURE_CACHING_MODES), ("kind", AZURE_KINDS)):
        value = source.get(name)
        if value is not None and value not in allowed:
            mistakes.append(rules.unsupported(f"{path}.{name}", value, allowed))
    kind = source.get("kind")
    if kind is None:
        return mistakes
    form, start = _AZURE_BLOB, "https://"
    if kind == "Managed":
        form, start = _AZURE_MANAGED, "/subscriptions/"
    uri = source.get("diskURI", "")
    if not uri.startswith(start):
        mistakes.append(fields.not_supported(f"{path}.diskURI", uri, (form,)))
    return mistakes


def _storage_os(source: Object, path: str) -> list[FieldError]:
    mistakes = _needs("volumeName")(source, path)
    for name in ("volumeName", "volumeNamespace"):
        if value := source.get(name):
            mistakes += rules.named(names.dns_label(value), f"{path}.{name}", value)
    if (secret := source.get("secretRef")) is not None:
        mistakes += _needs("name", "namespace")(secret, f"{path}.secretRef")
    return mistakes


# In the order of the checks: the field, how the complaints call it, its check.
_SOURCES: tuple[tuple[str, str, Check], ...] = (
    ("hostPath", "hostPath", _host_path),
    ("gcePersistentDisk", "persistentDisk", _cloud_disk("pdName")),
    ("awsElasticBlockStore", "awsElasticBlockStore", _cloud_disk("volumeID")),
    ("glusterfs", "glusterfs", _glusterfs),
    ("flocker", "flocker", _flocker),
    ("nfs", "nfs", _nfs),
    ("rbd", "rbd", _needs("monitors", "image")),
    ("quobyte", "quobyte", _quobyte),
    ("cephfs", "cephfs", _needs("monitors")),
    ("iscsi", "iscsi", _iscsi),
    ("cinder", "cinder", _cinder),
    ("fc", "fc", _fibre_channel),
    ("flexVolume", "flexVolume", _needs("driver")),
    ("azureFile", "azureFile", _azure_file),
    ("vsphereVolume", "vsphereVolume", _needs("volumePath")),
    ("photonPersistentDisk", "photonPersistentDisk", _needs("pdID")),
    ("portworxVolume", "portworxVolume", _needs("volumeID")),
    ("azureDisk", "azureDisk", _azure_disk),
    ("scaleIO", "scaleIO", _needs("gateway", "system", "volumeName")),
    ("local", "local", _local),
    ("storageos", "storageos", _storage_os),
    ("csi", "csi", _csi),
)
_SOURCE_NAMES = tuple(name for name, _, _ in _SOURCES)

# Mounted by the system's own tools, which take options.
_MOUNTED = frozenset(_SOURCE_NAMES) - {
    "hostPath",
    "flocker",
    "fc",
    "flexVolume",
    "portworxVolume",
    "scaleIO",
    "local",
    "storageos",
    "csi",
}


def _recycled_root(spec: Object, path: str) -> list[FieldError]:
    directory = (spec.get("hostPath") or {}).get("path")
    if directory is None or spec.get("persistentVolumeReclaimPolicy") != "Recycle":
        return []
    if posixpath.normpath(directory) not in ("/", "//"):
        return []
    detail = "may not be 'recycle' for a hostPath mount of '/'"
    return [fields.forbidden(f"{path}.persistentVolumeReclaimPolicy", detail)]


def class_name(name: str, path: str) -> list[FieldError]:
    return rules.named(names.dns_subdomain(name), path, name) if name else []


def volume_mode(mode: str | None, path: str) -> list[FieldError]:
    if mode is None or mode in VOLUME_MODES:
        return []
    return [rules.unsupported(path, mode, VOLUME_MODES)]


def _attributes_class(spec: Object, path: str) -> list[FieldError]:
    name = spec.get("volumeAttributesClassName")
    if name is None:
        return []
    mistakes = class_name(name, f"{path}.volumeAttributesClassName")
    if not name:
        detail = "an empty string is disallowed"
        mistakes.append(fields.required(f"{path}.volumeAttributesClassName", detail))
    if spec.get("csi") is None:
        detail = "has to be specified when using volumeAttributesClassName"
        mistakes.append(fields.required(f"{path}.csi", detail))
    return mistakes


def _mount_options(volume: Object) -> list[FieldError]:
    if MOUNT_OPTIONS_ANNOTATION not in objects.annotations(volume):
        return []
    if any((volume.get("spec") or {}).get(name) is not None for name in _MOUNTED):
        return []
    path = f"metadata.annotations.{MOUNT_OPTIONS_ANNOTATION}"
    return [fields.forbidden(path, "may not specify mount options for this volume type")]


def _source_change(new: Object, old: Object) -> list[FieldError]:
    kind = "core.PersistentVolumeSource"
    csi, before = new.get("csi"), old.get("csi")
    if csi and before and before.get("controllerExpandSecretRef") is None:
        # This one may be added later.
        new = new | {"csi": csi | {"controllerExpandSecretRef": None}}
    if internal.equal(kind, new, old):
        return []
    detail = "spec.persistentvolumesource is immutable after creation\n"
    detail += internal.diff(kind, old, new)
    return [fields.forbidden("spec.persistentvolumesource", detail)]


def _node_affinity_change(new: Object | None, old: Object | None) -> list[FieldError]:
    kind = "*core.VolumeNodeAffinity"
    if old is None or internal.equal(kind, new, old) or internal.equal(kind, new, _renamed(old)):
        return []
    detail = f"{meta.IMMUTABLE}, except for updating from beta label to GA"
    return [fields.invalid("nodeAffinity", internal.shown(kind, new), detail)]


def _renamed(affinity: Object) -> Object:
    """The affinity with the present names of labels."""
    required = affinity.get("required") or {}
    terms = [_renamed_term(each) for each in required.get("nodeSelectorTerms") or ()]
    return {"required": required | {"nodeSelectorTerms": terms}}


def _renamed_term(term: Object) -> Object:
    expressions = [
        each | {"key": _RENAMED_LABELS.get(each.get("key", ""), each.get("key", ""))}
        for each in term.get("matchExpressions") or ()
    ]
    return term | {"matchExpressions": expressions}


def _attributes_class_change(new: Object, old: Object) -> list[FieldError]:
    name = "volumeAttributesClassName"
    if new.get(name) is not None or old.get(name) is None:
        return []
    detail = "update from non-nil value to nil is forbidden"
    return [fields.forbidden(f"spec.{name}", detail)]


_DEPRECATED_ANNOTATIONS = {
    CLASS_ANNOTATION: 'deprecated since v1.8; use "storageClassName" attribute instead',
    MOUNT_OPTIONS_ANNOTATION: 'deprecated since v1.31; use "mountOptions" attribute instead',
}
_DEPRECATED_SOURCES = (
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    (
        "photonPersistentDisk",
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
)


def warnings(volume: Object) -> list[str]:
    """What is accepted but should not be used."""
    annotations, spec = objects.annotations(volume), volume.get("spec") or {}
    found = [
        f"metadata.annotations[{key}]: {text}"
        for key, text in _DEPRECATED_ANNOTATIONS.items()
        if key in annotations
    ]
    if spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        found.append(
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. "
            "Instead, the recommended approach is to use dynamic provisioning."
        )
    found += [
        f"spec.{shown}: {text}"
        for name, shown, text in _DEPRECATED_SOURCES
        if spec.get(name) is not None
    ]
    return found
