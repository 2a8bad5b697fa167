# SPDX-License-Identifier: Apache-2.0
"""The default values of a VolumeAttachment's fields."""

from refloat.api.defaults import pod
from refloat.api.meta import Object


def apply(attachment: Object) -> None:
    source = (attachment.get("spec") or {}).get("source") or {}
    inline = source.get("inlineVolumeSpec")
    if inline is not None:
        pod.apply_source(inline)
