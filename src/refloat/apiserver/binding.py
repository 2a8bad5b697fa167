# SPDX-License-Identifier: Apache-2.0
"""`pods/binding`: giving a pod to a node."""

from refloat.api import conditions, errors, kinds, times
from refloat.api.meta import Object, is_terminating
from refloat.api.validation import binding as validation
from refloat.apiserver import topology_labels
from refloat.apiserver.identity import Call
from refloat.apiserver.registry import Registry, check_uid, precondition_failed

PODS = kinds.of("pods")

_SCHEDULED = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}


async def bind(registry: Registry, call: Call, namespace: str, name: str, wish: Object) -> None:
    """Write the node's name, and where that node is, into a pod that has none."""
    if mistakes := validation.validate_create(wish):
        texts = ", ".join(str(each) for each in mistakes)
        raise errors.StatusError(500, "", texts if len(mistakes) == 1 else f"[{texts}]")
    metadata, node = wish["metadata"], wish["target"]["name"]
    written = {
        "annotations": metadata.get("annotations"),
        "labels": _labels(registry, wish),
    }

    def produce(old: Object) -> Object:
        _check_meant(call, metadata, old["metadata"])
        _check_free(old, name)
        held = list(conditions.of(old))
        conditions.upsert(held, _SCHEDULED, now=times.format_time(call.now))
        new = {**old, "metadata": {**old["metadata"]}}
        for field, added in written.items():
            if added:
                new["metadata"][field] = {**(old["metadata"].get(field) or {}), **added}
        new["spec"] = {**old["spec"], "nodeName": node}
        new["status"] = {**old["status"], "conditions": held}
        new["status"].pop("nominatedNodeName", None)  # it has come to what it was promised
        return new

    # Nobody owns what a binding writes.
    await registry.modify(call, PODS, namespace, name, produce, subresource="binding", settled=True)


def _labels(registry: Registry, wish: Object) -> Object:
    """Those of the binding, under those of the node that it names."""
    given: Object = wish["metadata"].get("labels") or {}
    target = wish["target"]
    if target.get("kind") != "Node":
        return given
    return {**given, **topology_labels.of_node(registry.store, target["name"])}


def _check_meant(call: Call, wanted: Object, held: Object) -> None:
    check_uid(call, PODS, wanted, held)
    if wanted.get("resourceVersion") not in (None, "", held["resourceVersion"]):
        raise precondition_failed(call, PODS, wanted, held, "ResourceVersion", "resourceVersion")


def _check_free(pod: Object, name: str) -> None:
    if is_terminating(pod):
        raise _conflict(name, f"pod {name} is being deleted, cannot be assigned to a host")
    if bound := pod["spec"].get("nodeName"):
        raise _conflict(name, f'pod {name} is already assigned to node "{bound}"')
    if pod["spec"].get("schedulingGates"):
        raise _conflict(name, f"pod {name} has non-empty .spec.schedulingGates")


def _conflict(name: str, cause: str) -> errors.StatusError:
    return errors.conflict("", "pods/binding", name, cause)
