# SPDX-License-Identifier: Apache-2.0
"""What a Secret's fields are when nobody says."""

import base64

from refloat.api.meta import Object


def apply(secret: Object) -> None:
    """Also turn `stringData`, which is only ever written, into data."""
    if not secret.get("type"):
        secret["type"] = "Opaque"
    texts = secret.pop("stringData", None)
    if texts:
        encoded = {
            key: base64.b64encode(text.encode()).decode("ascii") for key, text in texts.items()
        }
        secret["data"] = {**(secret.get("data") or {}), **encoded}


def prepare_update(new: Object, old: Object) -> None:
    """Without a type it keeps the one it has."""
    if not new.get("type"):
        new["type"] = old.get("type", "")
