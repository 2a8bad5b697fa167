# SPDX-License-Identifier: Apache-2.0
"""Merge patches (RFC 7386): objects merge, null deletes, the rest replaces."""

from typing import Any

from refloat.api import errors
from refloat.api.meta import Object
from refloat.apiserver.patch import rejections


def apply(doc: Object, patch: Any) -> Object:
    """The document after the patch; shares what the patch does not name."""
    if patch is None:
        raise errors.bad_request("Invalid JSON Patch")
    if not isinstance(patch, dict):
        raise errors.bad_request(f"error decoding patch: {rejections.not_an_object(patch)}")
    return _merge(doc, patch)


def _merge(doc: Object, patch: Object) -> Object:
    merged = doc.copy()
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
            continue
        current = merged.get(key)
        if not isinstance(current, dict):
            merged[key] = without_nulls(value)
        elif isinstance(value, dict):
            merged[key] = _merge(current, value)
        else:
            merged[key] = value
    return merged


def without_nulls(value: Any) -> Any:
    """The value without members that are null, also inside of lists.

    RFC 7386 would keep those in lists; Kubernetes drops them. List items that
    are null themselves stay.
    """
    if isinstance(value, dict):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [without_nulls(each) for each in value]
    return value
