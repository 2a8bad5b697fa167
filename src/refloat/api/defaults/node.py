# SPDX-License-Identifier: Apache-2.0
"""The default values of a Node's fields."""

from refloat.api.defaults import pod
from refloat.api.meta import Object


def apply(node: Object) -> None:
    status = node.get("status") or {}
    pod.round_amounts(status.get("capacity"))
    pod.round_amounts(status.get("allocatable"))
    if status.get("capacity") is not None and status.get("allocatable") is None:
        status["allocatable"] = dict(status["capacity"])
    spec = node.get("spec") or {}
    if spec.get("podCIDR"):  # the older field, which is the first of the list
        cidrs = spec.get("podCIDRs") or []
        if not cidrs or cidrs[0] != spec["podCIDR"]:
            spec["podCIDRs"] = [spec["podCIDR"]]
    elif spec.get("podCIDRs"):
        spec["podCIDR"] = spec["podCIDRs"][0]
