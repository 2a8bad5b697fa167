# SPDX-License-Identifier: Apache-2.0
"""What is the matter with a node, and what Refloat will do about it and its pods."""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime

from refloat.api import structs, times
from refloat.api.core import Node, Pod
from refloat.explain import surroundings
from refloat.explain.account import Account, Point, when
from refloat.explain.surroundings import Surroundings
from refloat.policy import force_eviction, out_of_service, zombie
from refloat.policy.failure_recovery import FailureRecoveryPolicy

# Pods that are told of one by one; of the others only how many there are.
MAX_PODS = 20


def explain(node: Node, around: Surroundings) -> Account:
    points = [Point("ready", health(node, around.now)), *_taints(node), *_future(node, around)]
    points += _force_eviction(node, around)
    points += surroundings.told(around.events, around.now)
    return Account(f"node {node.metadata.name}", tuple(points))


def health(node: Node, now: datetime) -> str:
    """Whether it is ready, and since when it is as it is."""
    ready = structs.find(node.status.conditions, "Ready")
    if ready is None:
        return "nothing is known of it yet"
    words = {"True": "ready", "False": "not ready, but its kubelet lives"}
    text = words.get(ready.status, "silent")
    if zombie.is_unreachable(node) and ready.status != "True":
        text = "unreachable"
    if ready.last_transition_time:
        text += f" since {when(times.parse(ready.last_transition_time), now)}"
    return text if ready.status == "True" else f"{text} ({ready.reason})"


def _taints(node: Node) -> Iterator[Point]:
    for taint in node.spec.taints or ():
        value = f"={taint.value}" if taint.value else ""
        yield Point("taint", f"{taint.key}{value}:{taint.effect}")


def _force_eviction(node: Node, around: Surroundings) -> Iterator[Point]:
    if text := force_eviction.told(node, around.pods):
        yield Point("force eviction", text)
        if around.force_eviction.configuration is None:
            yield Point("but", around.force_eviction.text)
        yield from around.force_eviction.points


def _future(node: Node, around: Surroundings) -> Iterator[Point]:
    yield Point("pods", _census(around.pods))
    configuration = around.recovery.configuration
    if configuration is None:
        yield Point("recovery", around.recovery.text)
        return
    policy = configuration.failure_recovery
    stuck = [pod for pod in around.pods if pod.is_terminating]
    for pod in stuck[:MAX_PODS]:
        yield Point("pod", f"{_name(pod)}: {_of_pod(pod, node, policy, around)}")
    if len(stuck) > MAX_PODS:
        yield Point("pod", f"and {len(stuck) - MAX_PODS} more that are being deleted")
    yield from _of_node(node, policy, around)
    if zombie.is_unreachable(node) and (why := surroundings.reservation(configuration)):
        yield Point("but", why)
    yield from around.recovery.points


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _census(pods: Iterable[Pod]) -> str:
    counts = Counter(
        "Terminating" if pod.is_terminating else pod.status.phase or "Pending" for pod in pods
    )
    return ", ".join(f"{count} {phase}" for phase, count in sorted(counts.items())) or "none"


def _of_pod(pod: Pod, node: Node, policy: FailureRecoveryPolicy, around: Surroundings) -> str:
    return zombie.decide(
        pod,
        node,
        policy,
        namespace=around.labels(pod.metadata.namespace),
        silence=zombie.UNWATCHED,
        now=around.now,
        promise=around.promise(pod),
    ).text


def _of_node(node: Node, policy: FailureRecoveryPolicy, around: Surroundings) -> Iterator[Point]:
    """Only where there is a rule for nodes: without one there is nothing to say."""
    if not policy.taint:
        return

    def may_end(pod: Pod) -> bool:
        opted = zombie.trigger_of(pod, around.labels(pod.metadata.namespace), policy)
        return not isinstance(opted, zombie.Ignore)

    decision = out_of_service.decide(
        node, around.pods, policy, may_end, silence=zombie.UNWATCHED, now=around.now
    )
    yield Point("out of service", decision.text)
