# SPDX-License-Identifier: Apache-2.0
"""The state of one pod: ended, being deleted, not started, or running."""

from dataclasses import replace
from datetime import timedelta

from refloat.api import structs, times
from refloat.api.core import PENDING, RUNNING, SUCCEEDED, Node, Pod
from refloat.explain import explain_context, node_state, pod_end, pod_pending, pod_terminating
from refloat.explain.codes import Cause, Code
from refloat.explain.explain_context import ExplainContext
from refloat.explain.explanation import KUBELET, Command, Evidence, Finding, NextStep, age
from refloat.policy.node import node_taints, taint_timers
from refloat.policy.recovery import zombie

TAINT_EVICTION = "taint eviction"

# What helps after each cause; the log is worth reading only if the container ran.
_ADVICE = {
    Cause.OOM: "raise resources.limits.memory of the container",
    Cause.STORAGE_LIMIT: "raise the limit of ephemeral storage, or write less",
    Cause.NODE_PRESSURE: "request what the pod uses, so that the scheduler finds room for it",
}


def explain(pod: Pod, context: ExplainContext) -> Finding:
    finding = _finding(pod, context)
    owner = pod.metadata.controller
    if owner is None or owner.kind != "Job":
        return finding
    command = f"refloat explain job/{owner.name} -n {pod.metadata.namespace}"
    see_job = Command("see what this means for the Job", command)
    return replace(finding, commands=(*finding.commands, see_job))


def _finding(pod: Pod, context: ExplainContext) -> Finding:
    if pod.is_terminating:
        return pod_terminating.explain(pod, context)
    if pod.is_terminal:
        return ended(pod, context)
    return active(pod, context)


def ended(pod: Pod, context: ExplainContext) -> Finding:
    """A pod that has Succeeded or Failed."""
    name, end = pod.metadata.name, pod_end.of(pod, context.events_of("Pod", pod))
    assert end is not None
    evidence = tuple(ended_evidence(pod))
    if pod.status.phase == SUCCEEDED:
        text = f"pod {name} ended with exit code 0"
        return Finding(Code.POD_SUCCEEDED, text, evidence=evidence)
    commands = []
    if end.cause in _ADVICE:
        commands.append(Command(_ADVICE[end.cause]))
    if any(each.state.terminated for each in pod.status.container_statuses or ()):
        log = f"kubectl logs {name} -n {pod.metadata.namespace} --all-containers"
        commands.append(Command("read the log", log))
    text = f"pod {name} failed ({end.cause}): {end.how}"
    events = explain_context.event_evidence(context.events_of("Pod", pod), context.now)
    return Finding(Code.POD_FAILED, text, (), tuple(commands), (*evidence, *events))


def ended_evidence(pod: Pod) -> list[Evidence]:
    """What the status of the pod says about its end."""
    source, status = f"pod/{pod.metadata.name}", pod.status
    reason = f", reason {status.reason}" if status.reason else ""
    message = f": {' '.join(status.message.split())}" if status.message else ""
    evidence = [Evidence(f"{source} status", f"phase {status.phase}{reason}{message}")]
    for condition in status.conditions or ():
        if condition.type in ("DisruptionTarget", zombie.CONDITION) and condition.status == "True":
            text = f"{condition.reason}: {condition.message}"
            evidence.append(Evidence(f"{source} condition {condition.type}", text))
    for each in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
        ended_ = each.state.terminated
        if ended_ is not None:
            text = f"exit code {ended_.exit_code}, {ended_.reason or 'without a reason'}"
            evidence.append(Evidence(f"{source} container {each.name}", text))
    return evidence


def active(pod: Pod, context: ExplainContext) -> Finding:
    """A pod that is neither terminal nor being deleted."""
    if not pod.spec.node_name:
        return pod_pending.unscheduled(pod, context)
    name, place = pod.metadata.name, pod.spec.node_name
    is_pending = pod.status.phase in (PENDING, "")
    node = context.nodes.get(place)
    if node is not None and node_state.is_lost(node):
        return _on_lost_node(pod, node, context)
    if place in context.nodes and node is None:
        # The Node object is gone, or never was: the template of a pod may name any node.
        code = Code.NOT_ACCEPTED if is_pending else Code.NODE_LOST
        text = f"pod {name} is on node {place}, which does not exist"
        step = NextStep("marks the pod Failed and removes it", "the pod garbage collector")
        return Finding(code, text, (step,), (Command("see the nodes", "kubectl get nodes"),))
    if node is None and node_state.seems_lost(pod):
        # The user may not read the node; what the node controller wrote into the pod shows a loss.
        text = (
            f"pod {name} is on node {place}, which seems lost: the node controller marked the pod"
            " not ready, and the kubelet did not"
        )
        act = "deletes the pod when its tolerations end, unless the node returns"
        step = NextStep(act, TAINT_EVICTION)
        events = explain_context.event_evidence(context.events_of("Pod", pod), context.now)
        ask = pod_terminating.ask_about(place)
        return Finding(Code.NODE_LOST, text, (step,), (ask,), events)
    return pod_pending.on_node(pod, context) if is_pending else _running(pod, context)


def _running(pod: Pod, context: ExplainContext) -> Finding:
    name = pod.metadata.name
    events = context.events_of("Pod", pod)
    for status in (
        *(pod.status.init_container_statuses or ()),
        *(pod.status.container_statuses or ()),
    ):
        finding = pod_pending.container(pod, status, events)
        if finding is not None:
            return finding
    text = f"pod {name} runs on node {pod.spec.node_name}"
    if pod.status.phase != RUNNING or structs.is_true(pod.status.conditions, "Ready"):
        since = pod.status.start_time
        for_ = f" for {age(times.parse(since), context.now)}" if since else ""
        return Finding(Code.RUNNING, f"{text}{for_}")
    finding = _runs_on(pod)
    if finding is None:
        finding = Finding(Code.NOT_READY, f"{text} and is not Ready")
        if failures := [each.note for each in events if each.reason == "Unhealthy"]:
            why = " ".join(failures[-1].split()).rstrip(":")
            log = Command("read the log", f"kubectl logs {name} -n {pod.metadata.namespace}")
            finding = replace(finding, verdict=f"{finding.verdict}: {why}", commands=(log,))
    return finding.with_evidence(explain_context.event_evidence(events, context.now))


def _runs_on(pod: Pod) -> Finding | None:
    """The pod of a Job ends only when all its containers have ended; a proxy never does."""
    statuses = pod.status.container_statuses or ()
    ended = [each.name for each in statuses if each.state.terminated is not None]
    running = [each.name for each in statuses if each.state.running is not None]
    if not ended or not running:
        return None
    name = pod.metadata.name
    text = (
        f"container {', '.join(ended)} of pod {name} has ended, but the pod goes on, because"
        f" container {', '.join(running)} runs on"
    )
    sidecar = Command(
        "if it only serves the other, make it a sidecar: move it to initContainers with"
        " restartPolicy Always"
    )
    read = f"kubectl logs {name} -c {running[0]} -n {pod.metadata.namespace}"
    step = NextStep("ends the pod when the last container has ended", KUBELET)
    return Finding(Code.RUNS_ON, text, (step,), (sidecar, Command("read its log", read)))


def _on_lost_node(pod: Pod, node: Node, context: ExplainContext) -> Finding:
    """The pod may still run; taint eviction deletes it after its toleration (behaviour C2)."""
    name, place = pod.metadata.name, node.metadata.name
    start = f"pod {name} is on node {place}, which has stopped reporting"
    evidence = (
        Evidence(f"node/{place}", node_state.health(node, context.now)),
        *pod_terminating.self_fence_evidence(pod, context),
        *explain_context.event_evidence(context.events_of("Pod", pod), context.now),
    )
    commands = (Command("look at the node", f"refloat explain node/{place}"),)
    taints = taint_timers.executing(node.spec.taints)
    if not taints:
        step = NextStep(
            f"taints the node {node_taints.UNREACHABLE}:NoExecute", "the node controller"
        )
        return Finding(Code.NODE_LOST, start, (step,), commands, evidence)
    decision = taint_timers.decide(taints, pod.spec.tolerations, counting=False)
    if decision.act == "cancel":
        text = f"{start}; it tolerates {node_taints.UNREACHABLE} for ever, so nothing evicts it"
        step = NextStep("the pod stays until its node returns, or a person acts")
        return Finding(Code.NODE_LOST, text, (step,), commands, evidence)
    since = max((each.time_added for each in taints if each.time_added), default=None)
    at = None
    if decision.act != "evict" and since is not None:
        at = times.parse(since) + timedelta(seconds=decision.seconds)
    step = NextStep("deletes the pod, unless the node returns first", TAINT_EVICTION, at)
    return Finding(Code.NODE_LOST, start, (step,), commands, evidence)
