# SPDX-License-Identifier: Apache-2.0
"""The API server's changes of a pod before validation.

The status begins here. The server drops the fields whose gates are off, and adds the
labels' values to selectors with keys alone. Defaults came before (`defaults/pod.py`).
"""

from collections.abc import Iterator

from refloat.api import go_internal_types, qos
from refloat.api.meta import Object
from refloat.api.validation import pod_affinity, pod_security
from refloat.api.validation.rules import Errors

_GATED = {
    "type": "PodScheduled",
    "status": "False",
    "lastProbeTime": None,
    "lastTransitionTime": None,
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}


def prepare_create(pod: Object, now: str) -> list[str]:
    """Make a pod ready for validation, in place; return the warnings about the changes."""
    pod["metadata"]["generation"] = 1
    # Kubernetes keeps the class that a client sends, whatever the class is.
    qos_class = (pod.get("status") or {}).get("qosClass") or qos.qos_class(pod)
    status: Object = {"phase": "Pending", "qosClass": qos_class}
    pod["status"] = status
    spec = pod.setdefault("spec", {})
    drop_disabled(spec)
    if spec.get("schedulingGates"):
        status["conditions"] = [{**_GATED, "lastTransitionTime": now}]
    # Selectors on the pod's own labels get the values.
    labels = pod["metadata"].get("labels") or {}
    for term in _terms(pod["spec"]):
        selector = term.get("labelSelector")
        if selector is None:
            continue
        for kind, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
            keys = [key for key in term.get(kind) or () if key in labels]
            if keys:
                selector["matchExpressions"] = [
                    *(selector.get("matchExpressions") or ()),
                    *({"key": key, "operator": operator, "values": [labels[key]]} for key in keys),
                ]
    return _copy_apparmor_annotations(pod)


def prepare_update(new: Object, old: Object) -> None:
    """Make a changed pod ready for validation, in place."""
    if "status" in old:
        new["status"] = old["status"]
    drop_disabled(new["spec"])
    if not go_internal_types.equal("core.PodSpec", new["spec"], old["spec"]):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def prepare_status_update(new: Object, old: Object) -> None:
    """Take over what the status endpoint does not change, in place (behaviour C8.8, C8.9)."""
    new["spec"] = old["spec"]
    _keep(new["metadata"], old["metadata"], "ownerReferences")
    _keep(new["metadata"], old["metadata"], "deletionTimestamp")
    status, before = new.setdefault("status", {}), old.get("status") or {}
    # The gates of these are off.
    status.pop("nodeAllocatableResourceClaimStatuses", None)
    for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        for each in status.get(kind) or ():
            for mount in each.get("volumeMounts") or ():
                mount.pop("volumeStatus", None)
    for key in ("qosClass", "observedGeneration"):
        if not status.get(key) and before.get(key):
            status[key] = before[key]
    # A condition without a generation keeps the old one.
    generations_by_type: dict[str, list[int]] = {}
    for condition in before.get("conditions") or ():
        generations = generations_by_type.setdefault(condition.get("type", ""), [])
        generations.append(condition.get("observedGeneration", 0))
    for condition in status.get("conditions") or ():
        generations = generations_by_type.get(condition.get("type", ""), [])
        old_generation = generations.pop(0) if generations else 0
        if not condition.get("observedGeneration") and old_generation:
            condition["observedGeneration"] = old_generation


def _keep(new: Object, old: Object, key: str) -> None:
    if key in old:
        new[key] = old[key]
    else:
        new.pop(key, None)


def drop_disabled(spec: Object) -> None:
    """Remove the fields whose gates are off in this release, in place."""
    spec.pop("schedulingGroup", None)
    for volume in spec.get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            source.pop("clusterTrustBundle", None)
            source.pop("podCertificate", None)
    for container, _ in pod_security.containers(spec, ""):
        if (container.get("lifecycle") or {}).get("stopSignal") is not None:
            del container["lifecycle"]["stopSignal"]
            if not container["lifecycle"]:
                del container["lifecycle"]


def _terms(spec: Object) -> Iterator[Object]:
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(kind) or {}
        yield from terms.get(pod_affinity.REQUIRED) or ()
        for preferred in terms.get(pod_affinity.PREFERRED) or ():
            yield preferred.get("podAffinityTerm") or {}
    yield from spec.get("topologySpreadConstraints") or ()


def _copy_apparmor_annotations(pod: Object) -> list[str]:
    """Profiles in annotations become fields, with a warning for each."""
    annotations, spec = pod["metadata"].get("annotations"), pod["spec"]
    if not annotations or (spec.get("os") or {}).get("name") == "windows":
        return []
    of_pod = (spec.get("securityContext") or {}).get("appArmorProfile")
    warnings = []
    for container, _ in pod_security.containers(spec, ""):
        key = pod_security.APPARMOR_CONTAINER + container.get("name", "")
        context = container.get("securityContext") or {}
        if key not in annotations or context.get("appArmorProfile") is not None:
            continue
        profile = pod_security.profile_of_annotation(annotations[key])
        if profile is not None and profile == of_pod:
            continue
        if profile is not None:
            errors = Errors()
            pod_security.check_apparmor({"appArmorProfile": profile}, "", errors)
            if not errors:
                container["securityContext"] = {**context, "appArmorProfile": profile}
        warnings.append(
            f"metadata.annotations[{key}]: "
            'deprecated since v1.30; use the "appArmorProfile" field instead'
        )
    return warnings
