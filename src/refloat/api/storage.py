# SPDX-License-Identifier: Apache-2.0
"""What controllers read of attached volumes (group storage.k8s.io).

See `structs` for what holds for all structs.
"""

from refloat.api.structs import ApiObject, Partial


class VolumeAttachmentSource(Partial, frozen=True):
    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(Partial, frozen=True):
    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachmentStatus(Partial, frozen=True):
    attached: bool = False


class VolumeAttachment(ApiObject, frozen=True):
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
    status: VolumeAttachmentStatus = VolumeAttachmentStatus()
