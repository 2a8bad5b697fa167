# SPDX-License-Identifier: Apache-2.0
"""Pods with Kubernetes' answers (`data/pods.json`).

Each case is a merge patch on the smallest pod. `causes` are those of the
Status that it was refused with; otherwise `spec` is what of the accepted pod's
specification differs from that of the smallest pod. Texts that recur stand in
one list. What admission adds was taken out of the answers. `template` is the
answer to the pod as a template, `same` where it differs by the path alone.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from refloat.api import codec, pod_preparation, schema
from refloat.api.defaults import pod as defaults
from refloat.api.fields import FieldError
from refloat.api.meta import Object

NOW = "2026-01-01T00:00:00Z"
SMALLEST: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}


@cache
def table() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(
        Path(__file__).with_name("data").joinpath("pods.json").read_text()
    )
    return loaded


def cases(part: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table()[part]
    return rows


def templates() -> list[dict[str, Any]]:
    """The same pods as templates, and those that admission keeps from being pods."""
    return [each for each in (*cases("create"), *cases("template")) if "template" in each]


def ids(part: str) -> list[str]:
    return [each["id"] for each in cases(part)]


def patched(target: Any, patch: Any) -> Any:
    """RFC 7386, on copies."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(result.get(key), dict):
            result[key] = patched(result[key], value)
        else:
            result[key] = value
    return result


def decoded(obj: Object) -> Object:
    copied: Object = json.loads(json.dumps(obj))
    return codec.convert(copied, schema.struct("v1", "Pod")).obj


def want_causes(case: dict[str, Any]) -> list[tuple[str, str, str]]:
    texts = table()["texts"]
    return [
        (reason, field, text if isinstance(text, str) else text[0] + texts[text[1]])
        for reason, field, text in case.get("causes", ())
    ]


def causes(mistakes: list[FieldError]) -> list[tuple[str, str, str]]:
    return [(each.type, each.path, each.body) for each in mistakes]


def with_defaults(part: str, differences: dict[str, Any]) -> Object:
    """A specification from its differences to the smallest one."""
    spec = {**table()["defaults"][part], **differences}
    return {key: value for key, value in spec.items() if value is not None}


def new_pod(case: dict[str, Any]) -> tuple[Object, list[str]]:
    """A pod before validation, and the warnings until then."""
    pod = decoded(patched(SMALLEST, case["pod"]))
    metadata = pod["metadata"]
    metadata["namespace"] = "default"
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = case.get("name") or metadata["generateName"] + "x2x4x"
    # The server sets or drops these before validation.
    for key in ("deletionTimestamp", "deletionGracePeriodSeconds", "managedFields"):
        metadata.pop(key, None)
    defaults.apply(pod)
    return pod, pod_preparation.prepare_create(pod, NOW)


def new_template(case: dict[str, Any]) -> Object:
    pod = decoded(patched(SMALLEST, case["pod"]))
    template = {"metadata": pod["metadata"], "spec": pod["spec"]}
    defaults.apply_template(template)
    pod_preparation.drop_disabled(template["spec"])
    return template


def stored_pod(case: dict[str, Any]) -> Object:
    old = case["old"]
    obj = {**SMALLEST, **old, "spec": with_defaults("spec", old["spec"])}
    return decoded(obj)


def changed_pod(case: dict[str, Any], old: Object) -> Object:
    """The pod that was sent, with what the server takes over from the old one."""
    new = decoded(patched(old, case["patch"]))
    defaults.apply(new)
    metadata = new["metadata"]
    for key in ("generation", "creationTimestamp"):
        metadata[key] = old["metadata"][key]
    for key in ("uid", "resourceVersion"):
        metadata.setdefault(key, old["metadata"][key])
    return new
