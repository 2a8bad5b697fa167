# SPDX-License-Identifier: Apache-2.0
"""What a VolumeAttachment must be; its spec never changes."""

from refloat.api import fields, names
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import meta, persistentvolume, volume_sources

_MAX_METADATA = 256 * 1024
_MAX_ERROR = 1024
_EXACTLY_ONE = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"


def validate_create(attachment: Object) -> list[FieldError]:
    """The rules of an update too."""
    spec, metadata = attachment.get("spec") or {}, attachment["metadata"]
    source = spec.get("source") or {}
    errors = meta.validate(metadata, namespaced=False, name_check=names.dns_subdomain)
    volume_sources.check_csi_driver(spec.get("attacher", ""), "spec.attacher", errors)
    inline, volume = source.get("inlineVolumeSpec"), source.get("persistentVolumeName")
    if inline is None and volume is None:
        errors.required("spec.source", _EXACTLY_ONE)
    elif inline is not None and volume is not None:
        errors.forbidden("spec.source", _EXACTLY_ONE)
    elif inline is not None:
        persistentvolume.check_inline(inline, "spec.source.inlineVolumeSpec", errors)
    elif not volume:
        path = "spec.source.persistentVolumeName"
        errors.required(path, "must specify non empty persistentVolumeName")
    errors.named("spec.nodeName", spec.get("nodeName", ""), names.dns_subdomain)
    status = attachment.get("status") or {}
    details = status.get("attachmentMetadata") or {}
    if sum(len(key) + len(value) for key, value in details.items()) > _MAX_METADATA:
        errors.append(fields.too_long("status.attachmentMetadata", _MAX_METADATA))
    for name in ("attachError", "detachError"):
        error = status.get(name) or {}
        if names.longer(error.get("message", ""), _MAX_ERROR):
            # Kubernetes names the other limit here.
            errors.append(fields.too_long(f"status.{name}.message", _MAX_METADATA))
        if (code := error.get("errorCode", 0)) < 0:
            errors.invalid(f"status.{name}.errorCode", code, names.inclusive_range(0, 2**31 - 1))
    if volume is not None:
        errors.named("spec.source.persistentVolumeName", volume, names.dns_subdomain)
    return errors


def validate_update(new: Object, old: Object) -> list[FieldError]:
    errors = meta.validate_common_update(new["metadata"], old["metadata"])
    errors += validate_create(new)
    errors.immutable("spec", new.get("spec"), old.get("spec"), "storage.VolumeAttachmentSpec")
    return errors


validate_status_update = validate_update
