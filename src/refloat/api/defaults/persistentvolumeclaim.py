# SPDX-License-Identifier: Apache-2.0
"""The default values of a PersistentVolumeClaim's fields.

A claim names its data source twice, in an old field and in a new one; the
server copies each into the other.
"""

from refloat.api.defaults import pod
from refloat.api.meta import Object

_VOLUME_DATA = (("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"))


def apply(claim: Object) -> None:
    spec = claim.setdefault("spec", {})
    spec.setdefault("volumeMode", "Filesystem")
    status = claim.setdefault("status", {})
    resources = spec.get("resources") or {}
    for amounts in (resources.get("limits"), resources.get("requests")):
        pod.round_amounts(amounts)
    for name in ("capacity", "allocatedResources"):
        pod.round_amounts(status.get(name))
    pod.fill(status, {"phase": "Pending"})


def prepare_create(claim: Object) -> None:
    claim["status"] = {"phase": "Pending"}
    prepare_sources(claim["spec"], None)


def prepare_update(new: Object, old: Object) -> None:
    new["status"] = old["status"]
    prepare_sources(new["spec"], old["spec"])


def prepare_sources(spec: Object, old: Object | None) -> None:
    """Drop unsupported sources, then copy each field into the other."""
    reference = spec.get("dataSourceRef")
    stored = (old or {}).get("dataSourceRef") is not None
    if reference and reference.get("namespace") and not stored:
        del spec["dataSourceRef"]  # across namespaces: not in this version
    in_use = stored or (old or {}).get("dataSource") is not None
    source = spec.get("dataSource")
    pair = (source or {}).get("apiGroup") or "", (source or {}).get("kind", "")
    if not in_use and spec.get("dataSourceRef") is None and pair not in _VOLUME_DATA:
        spec.pop("dataSource", None)
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None and reference is None:
        spec["dataSourceRef"] = dict(source)
    elif reference is not None and source is None and not reference.get("namespace"):
        spec["dataSource"] = {k: v for k, v in reference.items() if k != "namespace"}
