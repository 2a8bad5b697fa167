# SPDX-License-Identifier: Apache-2.0
"""`pods/binding`: binds a pod to a node."""

from refloat.api import conditions, errors, kinds, times
from refloat.api.meta import Object, is_terminating
from refloat.api.validation import binding as validation
from refloat.apiserver import topology_labels
from refloat.apiserver.identity import Call
from refloat.apiserver.registry import Registry, check_uid, precondition_failed
from refloat.apiserver.routes import Target

PODS = kinds.of("pods")

_SCHEDULED = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}


async def bind(registry: Registry, call: Call, target: Target, obj: Object) -> None:
    """Write the node's name and topology labels into an unbound pod."""
    if mistakes := validation.validate_create(obj):
        texts = ", ".join(str(each) for each in mistakes)
        raise errors.StatusError(500, "", texts if len(mistakes) == 1 else f"[{texts}]")
    metadata, node = obj["metadata"], obj["target"]["name"]
    changes = {"annotations": metadata.get("annotations"), "labels": _labels(registry, obj)}

    def produce(old: Object) -> Object:
        live = old["metadata"]
        check_uid(call, PODS, metadata, live)
        if metadata.get("resourceVersion") not in (None, "", live["resourceVersion"]):
            names = ("ResourceVersion", "resourceVersion")
            raise precondition_failed(call, PODS, metadata, live, *names)
        if is_terminating(old):
            cause = f"pod {target.name} is being deleted, cannot be assigned to a host"
            raise _conflict(target.name, cause)
        if bound := old["spec"].get("nodeName"):
            cause = f'pod {target.name} is already assigned to node "{bound}"'
            raise _conflict(target.name, cause)
        if old["spec"].get("schedulingGates"):
            cause = f"pod {target.name} has non-empty .spec.schedulingGates"
            raise _conflict(target.name, cause)
        pod_conditions = list(conditions.of(old))
        conditions.upsert(pod_conditions, _SCHEDULED, now=times.format_time(call.now))
        new = {**old, "metadata": {**live}}
        for field, added in changes.items():
            if added:
                new["metadata"][field] = {**(live.get(field) or {}), **added}
        new["spec"] = {**old["spec"], "nodeName": node}
        new["status"] = {**old["status"], "conditions": pod_conditions}
        new["status"].pop("nominatedNodeName", None)
        return new

    # The fields that a binding writes have no owner.
    await registry.modify(call, target, produce, owners_final=True)


def _labels(registry: Registry, obj: Object) -> Object:
    """The labels of the binding; the topology labels of the node win."""
    labels: Object = obj["metadata"].get("labels") or {}
    target = obj["target"]
    if target.get("kind") != "Node":
        return labels
    return {**labels, **topology_labels.of_node(registry.store, target["name"])}


def _conflict(name: str, cause: str) -> errors.StatusError:
    return errors.conflict("", "pods/binding", name, cause)
