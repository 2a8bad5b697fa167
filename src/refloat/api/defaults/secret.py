# SPDX-License-Identifier: Apache-2.0
"""The default values of a Secret's fields."""

import base64

from refloat.api.meta import Object


def apply(secret: Object) -> None:
    """Fill in the type, and convert `stringData` into data."""
    if not secret.get("type"):
        secret["type"] = "Opaque"
    texts = secret.pop("stringData", None)
    if texts:
        encoded = {
            key: base64.b64encode(text.encode()).decode("ascii") for key, text in texts.items()
        }
        secret["data"] = {**(secret.get("data") or {}), **encoded}


def prepare_update(new: Object, old: Object) -> None:
    """An update without a type keeps the old one."""
    if not new.get("type"):
        new["type"] = old.get("type", "")
