# SPDX-License-Identifier: Apache-2.0
"""Objects and the metadata that all of them have."""

from typing import Any, TypeAlias

Object: TypeAlias = dict[str, Any]
"""An API object in the shape of the JSON: apiVersion, kind, metadata, ..."""


def labels(obj: Object) -> dict[str, str]:
    """The labels of an object, empty for none."""
    return obj["metadata"].get("labels") or {}


def annotations(obj: Object) -> dict[str, str]:
    """The annotations of an object, empty for none."""
    return obj["metadata"].get("annotations") or {}


def is_terminating(obj: Object) -> bool:
    return obj["metadata"].get("deletionTimestamp") is not None
