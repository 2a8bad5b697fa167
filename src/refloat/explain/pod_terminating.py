# SPDX-License-Identifier: Apache-2.0
"""What holds a deleted pod, and what will end it: time, finalizers, or a lost node.

Recovery of pods on lost nodes is decided by `policy.recovery.zombie`, as in its controller.
"""

from collections.abc import Iterator
from datetime import timedelta

from refloat.api.core import Node, Pod
from refloat.explain import explain_context, node_state
from refloat.explain.codes import Code
from refloat.explain.explain_context import ExplainContext
from refloat.explain.explanation import KUBELET, Command, Evidence, Finding, NextStep, age
from refloat.policy.recovery import recovery_bounds, zombie

RECOVERY = "zombie recovery"
JOB_TRACKING = "batch.kubernetes.io/job-tracking"

# A kubelet needs a moment after the grace period to report the end.
REPORT_SECONDS = 10


def explain(pod: Pod, context: ExplainContext) -> Finding:
    """A pod with a deletionTimestamp."""
    evidence = tuple(_deletion(pod, context))
    return _finding(pod, context).with_evidence(
        (
            *evidence,
            *explain_context.event_evidence(context.events_of("Pod", pod), context.now),
        )
    )


def _finding(pod: Pod, context: ExplainContext) -> Finding:
    if pod.is_terminal:
        return _kept(pod)
    name, node_name = pod.metadata.name, pod.spec.node_name
    if not node_name:
        step = NextStep("removes the pod", "the pod garbage collector")
        return Finding(Code.TERMINATING, f"pod {name} was deleted before it had a node", (step,))
    node = context.nodes.get(node_name)
    if node_name in context.nodes and node is None:
        text = f"pod {name} was deleted, and its node {node_name} no longer exists"
        step = NextStep("marks the pod Failed and removes it", "the pod garbage collector")
        return Finding(Code.TERMINATING, text, (step,))
    if node is not None and node_state.is_lost(node):
        return _on_lost_node(pod, node, context)
    if node is None and node_state.seems_lost(pod):
        text = (
            f"pod {name} was deleted, and its node {node_name} seems lost: the node controller"
            " marked the pod not ready, and the kubelet did not"
        )
        return _stays(text, ask_about(node_name), _force_by_hand(pod))
    return _on_living_node(pod, node, context)


def ask_about(node: str) -> Command:
    return Command("ask a person who may read nodes to run", f"refloat explain node/{node}")


def _deletion(pod: Pod, context: ExplainContext) -> Iterator[Evidence]:
    due = zombie.deleted_at(pod)
    grace = pod.metadata.deletion_grace_period_seconds or 0
    requested = age(due - timedelta(seconds=grace), context.now)
    source = f"pod/{pod.metadata.name} metadata.deletionTimestamp"
    yield Evidence(source, f"deleted {requested} ago with a grace period of {grace} s")
    if pod.metadata.finalizers:
        source = f"pod/{pod.metadata.name} metadata.finalizers"
        yield Evidence(source, ", ".join(pod.metadata.finalizers))
    if (node := context.nodes.get(pod.spec.node_name)) is not None:
        yield Evidence(f"node/{node.metadata.name}", node_state.health(node, context.now))
    yield from self_fence_evidence(pod, context)


def self_fence_evidence(pod: Pod, context: ExplainContext) -> Iterator[Evidence]:
    """The promise of the node to end the pod by itself when it loses the API server."""
    promise = context.promise(pod)
    if promise is None:
        return
    text = f"the node ends the pod by itself {promise.seconds} s after it last reached the API"
    if pod.spec.node_name not in context.promises:
        text += "; the pod's condition shows this, because the Lease of the node is not readable"
    yield Evidence("self-fence", text)


def _kept(pod: Pod) -> Finding:
    """The containers have ended; only the object is left."""
    names = pod.metadata.finalizers or ()
    if set(names) <= {JOB_TRACKING}:
        step = NextStep("counts the pod and removes it", "the Job controller")
        text = f"pod {pod.metadata.name} has ended and the Job controller has not counted it yet"
        return Finding(Code.UNCOUNTED, text, (step,))
    foreign = ", ".join(each for each in names if each != JOB_TRACKING)
    text = f"pod {pod.metadata.name} has ended; the finalizers {foreign} keep its object"
    step = NextStep("the owner of the finalizers removes them")
    remove = Command(
        "if their owner is gone, remove the finalizers",
        f"kubectl patch pod {pod.metadata.name} -n {pod.metadata.namespace} --type=merge"
        """ -p '{"metadata":{"finalizers":null}}'""",
    )
    return Finding(Code.TERMINATING_FINALIZERS, text, (step,), (remove,))


def _on_living_node(pod: Pod, node: Node | None, context: ExplainContext) -> Finding:
    name, place = pod.metadata.name, pod.spec.node_name
    due = zombie.deleted_at(pod)
    if due + timedelta(seconds=REPORT_SECONDS) >= context.now:
        text = f"pod {name} was deleted and has until the end of its grace period to end"
        step = NextStep("kills the containers that still run", KUBELET, due)
        return Finding(Code.TERMINATING, text, (step,))
    late = age(due, context.now)
    if node is None:
        text = (
            f"pod {name} was deleted, and its grace period ended {late} ago; the node {place}"
            " may be lost"
        )
        return Finding(Code.TERMINATING_OVERDUE, text, commands=(ask_about(place),))
    text = (
        f"pod {name} was deleted, and its grace period ended {late} ago; node {place} lives,"
        " so its kubelet should have ended the pod"
    )
    step = NextStep("ends the pod; Refloat forces nothing on a living node", KUBELET)
    look = Command("look at the node: the kubelet's log, the containers")
    return Finding(Code.TERMINATING_OVERDUE, text, (step,), (look,))


def _on_lost_node(pod: Pod, node: Node, context: ExplainContext) -> Finding:
    name, place = pod.metadata.name, node.metadata.name
    start = f"pod {name} was deleted, and its node {place} is lost"
    by_hand = _force_by_hand(pod)
    configuration = context.recovery.configuration
    if configuration is None:
        return _stays(f"{start}; {context.recovery.text}", by_hand, _declare_off(place))
    decision = context.recovery_decision(pod, node, configuration.failure_recovery)
    if isinstance(decision, zombie.Ignore):
        start += "; zombie recovery leaves the pod alone"
        if decision.reason != zombie.Reason.NOT_OPTED_IN:
            return _stays(f"{start}: {decision.text}", by_hand)
        annotation = zombie.ANNOTATIONS[0]
        opt_in = Command(
            "allow recovery for this pod, if a second copy does no harm",
            f"kubectl annotate pod {name} -n {pod.metadata.namespace} {annotation}=true",
        )
        text = f'{start}: the pod lacks the annotation {annotation}: "true", and no rule selects it'
        return _stays(text, opt_in, by_hand)
    if reservation := explain_context.reservation(configuration):
        text = f"{start}; zombie recovery would free the pod, but {reservation}"
        return _stays(text, by_hand, _declare_off(place))
    if hold := explain_context.node_hold(configuration, context):
        text = f"{start}; zombie recovery will free the pod later: {hold}"
        step = NextStep("frees the pod when fewer nodes are unreachable", RECOVERY)
        return Finding(Code.TERMINATING_RECOVERY, text, (step,), (by_hand,))
    trigger = decision.trigger.name
    text = f"{start}; zombie recovery will free the pod (triggered by `{trigger}`)"
    events = context.events_of("Node", node)
    holds = [each for each in events if each.reason == recovery_bounds.HELD]
    evidence = (
        Evidence("failure recovery", decision.text),
        *context.recovery.points,
        *explain_context.event_evidence(holds, context.now),
    )
    at = decision.until if isinstance(decision, zombie.TerminateLater) else None
    step = NextStep("marks the pod Failed, unless the node returns first", RECOVERY, at)
    return Finding(Code.TERMINATING_RECOVERY, text, (step,), evidence=evidence)


def _stays(text: str, *commands: Command) -> Finding:
    """Nothing acts on the pod of a lost node."""
    step = NextStep("the pod stays until its node returns, or a person acts")
    return Finding(Code.TERMINATING_LOST_NODE, text, (step,), commands)


def _force_by_hand(pod: Pod) -> Command:
    return Command(
        "if the node is surely dead, remove the pod by hand",
        f"kubectl delete pod {pod.metadata.name} -n {pod.metadata.namespace}"
        " --grace-period=0 --force",
    )


def _declare_off(node: str) -> Command:
    return Command(
        "if the node is surely down, let Kubernetes free its pods and volumes",
        f"kubectl taint node {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
    )
