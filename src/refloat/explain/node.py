# SPDX-License-Identifier: Apache-2.0
"""The state of a node, and what Refloat will do about it and its pods."""

from collections import Counter
from collections.abc import Iterator, Sequence

from refloat.api import structs
from refloat.api.core import Node, Pod
from refloat.explain import explain_context, node_state
from refloat.explain.codes import Code
from refloat.explain.explain_context import ExplainContext
from refloat.explain.explanation import Command, Evidence, Finding, NextStep
from refloat.policy.recovery import force_eviction, out_of_service, zombie

# Pods that are listed one by one; of the others only how many there are.
MAX_PODS = 20


def explain(node: Node, pods: Sequence[Pod], context: ExplainContext) -> Finding:
    finding = _finding(node, pods, context)
    evidence = [Evidence(f"node/{node.metadata.name}", node_state.health(node, context.now))]
    evidence += _taints(node)
    phases = Counter(
        "Terminating" if pod.is_terminating else pod.status.phase or "Pending" for pod in pods
    )
    shown = ", ".join(f"{count} {phase}" for phase, count in sorted(phases.items()))
    evidence.append(Evidence("pods", shown or "none"))
    evidence += _recovery(node, pods, context)
    events = context.events_of("Node", node)
    evidence += explain_context.event_evidence(events, context.now)
    return finding.with_evidence(evidence)


def _finding(node: Node, pods: Sequence[Pod], context: ExplainContext) -> Finding:
    name = node.metadata.name
    if text := force_eviction.describe(node, pods):
        return _force_eviction(node, text, context)
    ready = structs.find(node.status.conditions, "Ready")
    if ready is None:
        return Finding(Code.NODE_UNKNOWN, f"node {name} has not reported yet")
    if ready.status == "Unknown":
        return _lost(node, pods)
    if ready.status != "True":
        text = f"node {name} is not ready: {ready.reason}: {ready.message}"
        look = Command("read the kubelet's messages", f"kubectl describe node {name}")
        return Finding(Code.NODE_NOT_READY, text, commands=(look,))
    if node.spec.unschedulable:
        undo = Command("let it take pods again", f"kubectl uncordon {name}")
        text = f"node {name} is ready and takes no new pods (cordoned)"
        return Finding(Code.NODE_CORDONED, text, commands=(undo,))
    return Finding(Code.NODE_READY, f"node {name} is ready")


def _force_eviction(node: Node, text: str, context: ExplainContext) -> Finding:
    name, outlook = node.metadata.name, context.force_eviction
    if outlook.configuration is None:
        step = NextStep(outlook.text)
        return Finding(Code.NODE_FORCE_EVICTION, f"node {name} was declared down: {text}", (step,))
    step = NextStep(text, "force eviction")
    verdict = f"node {name} was declared down; force eviction frees its pods and volumes"
    return Finding(Code.NODE_FORCE_EVICTION, verdict, (step,), evidence=tuple(outlook.points))


def _lost(node: Node, pods: Sequence[Pod]) -> Finding:
    name = node.metadata.name
    stuck = sum(pod.is_terminating and not pod.is_terminal for pod in pods)
    text = f"node {name} has stopped reporting; its pods may still run"
    if stuck:
        text += f"; {stuck} deleted pods hang there"
    declare = Command(
        "if the node is surely down, let Refloat free its pods and volumes",
        f"kubectl taint node {name} {force_eviction.REQUEST_TAINT.key}=true:NoSchedule",
    )
    step = NextStep("deletes its pods when their tolerations end", "taint eviction")
    return Finding(Code.NODE_SILENT, text, (step,), (declare,))


def _taints(node: Node) -> Iterator[Evidence]:
    for taint in node.spec.taints or ():
        value = f"={taint.value}" if taint.value else ""
        yield Evidence(f"node/{node.metadata.name} taint", f"{taint.key}{value}:{taint.effect}")


def _recovery(node: Node, pods: Sequence[Pod], context: ExplainContext) -> Iterator[Evidence]:
    """What zombie recovery decides about each deleted pod, and about the node."""
    stuck = [pod for pod in pods if pod.is_terminating]
    if not stuck and not zombie.is_unreachable(node):
        return
    configuration = context.recovery.configuration
    if configuration is None:
        yield Evidence("failure recovery", context.recovery.text)
        return
    policy = configuration.failure_recovery
    for pod in stuck[:MAX_PODS]:
        key = f"{pod.metadata.namespace}/{pod.metadata.name}"
        yield Evidence(f"pod {key}", context.recovery_decision(pod, node, policy).text)
    if len(stuck) > MAX_PODS:
        yield Evidence("pods", f"{len(stuck) - MAX_PODS} more are being deleted")
    if policy.taint:
        of_node = out_of_service.decide(
            node, pods, policy, context.is_recovered, silence=zombie.UNWATCHED, now=context.now
        )
        yield Evidence("out of service", of_node.text)
    if zombie.is_unreachable(node) and (why := explain_context.reservation(configuration)):
        yield Evidence("failure recovery", f"changes nothing: {why}")
    yield from context.recovery.points
