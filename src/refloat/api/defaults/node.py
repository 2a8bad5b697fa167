# SPDX-License-Identifier: Apache-2.0
"""What a Node's fields are when nobody says."""

from refloat.api.meta import Object


def apply(node: Object) -> None:
    status = node.get("status")
    if status and status.get("capacity") is not None and status.get("allocatable") is None:
        status["allocatable"] = dict(status["capacity"])
