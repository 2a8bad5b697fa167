# SPDX-License-Identifier: Apache-2.0
"""What a VolumeAttachment's fields are when nobody says."""

from refloat.api.defaults import persistentvolume
from refloat.api.meta import Object


def apply(attachment: Object) -> None:
    source = (attachment.get("spec") or {}).get("source") or {}
    inline = source.get("inlineVolumeSpec")
    if inline is not None:
        persistentvolume.apply_spec_sources(inline)
