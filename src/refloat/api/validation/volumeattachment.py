# SPDX-License-Identifier: Apache-2.0
"""What a VolumeAttachment must be; its spec never changes."""

from refloat.api import fields, names
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import meta, persistentvolume, rules

_MAX_METADATA = 256 * 1024
_MAX_ERROR = 1024
_EXACTLY_ONE = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"


def validate_create(attachment: Object) -> list[FieldError]:
    """Also what an update must keep to."""
    spec = attachment.get("spec") or {}
    volume = (spec.get("source") or {}).get("persistentVolumeName")
    node = spec.get("nodeName", "")
    mistakes = meta.validate(
        attachment["metadata"], namespaced=False, name_check=names.dns_subdomain
    )
    mistakes += persistentvolume.csi_driver(spec.get("attacher", ""), "spec.attacher")
    mistakes += _source(spec.get("source") or {})
    mistakes += rules.named(names.dns_subdomain(node), "spec.nodeName", node)
    mistakes += _status(attachment.get("status") or {})
    if volume is not None:
        path = "spec.source.persistentVolumeName"
        mistakes += rules.named(names.dns_subdomain(volume), path, volume)
    return mistakes


def validate_update(new: Object, old: Object) -> list[FieldError]:
    specs = new.get("spec"), old.get("spec")
    return [
        *meta.validate_common_update(new["metadata"], old["metadata"]),
        *validate_create(new),
        *rules.immutable(*specs, "spec", "storage.VolumeAttachmentSpec"),
    ]


validate_status_update = validate_update


def _source(source: Object) -> list[FieldError]:
    path = "spec.source"
    inline, name = source.get("inlineVolumeSpec"), source.get("persistentVolumeName")
    if inline is None and name is None:
        return [fields.required(path, _EXACTLY_ONE)]
    if inline is not None and name is not None:
        return [fields.forbidden(path, _EXACTLY_ONE)]
    if inline is not None:
        return persistentvolume.validate_inline(inline, f"{path}.inlineVolumeSpec")
    if not name:
        detail = "must specify non empty persistentVolumeName"
        return [fields.required(f"{path}.persistentVolumeName", detail)]
    return []


def _status(status: Object) -> list[FieldError]:
    mistakes = []
    metadata = status.get("attachmentMetadata") or {}
    if sum(len(key) + len(value) for key, value in metadata.items()) > _MAX_METADATA:
        mistakes.append(fields.too_long("status.attachmentMetadata", _MAX_METADATA))
    mistakes += _error(status.get("attachError"), "status.attachError")
    return mistakes + _error(status.get("detachError"), "status.detachError")


def _error(error: Object | None, path: str) -> list[FieldError]:
    if not error:
        return []
    mistakes = []
    if names.longer(error.get("message", ""), _MAX_ERROR):
        # Kubernetes names the other limit here.
        mistakes.append(fields.too_long(f"{path}.message", _MAX_METADATA))
    if error.get("errorCode", 0) < 0:
        detail = names.inclusive_range(0, 2**31 - 1)
        mistakes.append(fields.invalid(f"{path}.errorCode", error["errorCode"], detail))
    return mistakes
