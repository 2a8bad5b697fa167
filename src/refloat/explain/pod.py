# SPDX-License-Identifier: Apache-2.0
"""Why a pod is where it is, and what Refloat will do about it."""

from collections.abc import Iterator
from datetime import timedelta

from refloat.api import structs, times
from refloat.api.core import Node, Pod
from refloat.config.load import Configuration
from refloat.explain import surroundings
from refloat.explain.account import Account, Point, when
from refloat.explain.node import health
from refloat.explain.surroundings import Surroundings
from refloat.policy import node_taints, recovery_bounds, taint_timers, zombie


def explain(pod: Pod, around: Surroundings) -> Account:
    meta = pod.metadata
    points = [*_state(pod, around), *_node(pod, around), *_future(pod, around)]
    points += surroundings.told(around.events, around.now)
    return Account(f"pod {meta.namespace}/{meta.name}", tuple(points))


def _state(pod: Pod, around: Surroundings) -> Iterator[Point]:
    status = pod.status
    about = f"{status.phase or 'Pending'}{f' ({status.reason})' if status.reason else ''}"
    yield Point("phase", f"{about}{f': {status.message}' if status.message else ''}")
    forced = structs.find(status.conditions, zombie.CONDITION)
    if forced is not None and forced.status == "True":
        yield Point("forced", forced.message)
    if not pod.is_terminating:
        return
    over = zombie.deleted_at(pod)
    grace = pod.metadata.deletion_grace_period_seconds or 0
    asked = when(over - timedelta(seconds=grace), around.now)
    ends = "ends" if over > around.now else "was over"
    text = f"asked for at {asked}; its grace of {grace}s {ends} at {when(over, around.now)}"
    yield Point("deletion", text)
    if pod.metadata.finalizers:
        names = ", ".join(pod.metadata.finalizers)
        yield Point("finalizers", f"the object stays until these are gone: {names}")


def _node(pod: Pod, around: Surroundings) -> Iterator[Point]:
    name = pod.spec.node_name
    if not name:
        yield Point("node", "none yet")
    elif around.node_hidden:
        yield Point("node", f"{name} (you may not read it)")
    elif around.node is None:
        yield Point("node", f"{name} does not exist")
    else:
        yield Point("node", f"{name}: {health(around.node, around.now)}")
    promise = around.promise(pod)
    if promise is not None:
        text = f"its node ends it by itself {promise.seconds}s after it last reached the API"
        if around.promises is None:
            text += "; by the pod's condition, because you may not read the Lease of the node"
        yield Point("self-fence", text)


def _future(pod: Pod, around: Surroundings) -> Iterator[Point]:
    if pod.is_terminating:
        yield from _recovery(pod, around)
    elif not pod.is_terminal and around.node is not None and zombie.is_unreachable(around.node):
        yield Point("next", _eviction(pod, around.node, around))


def _eviction(pod: Pod, node: Node, around: Surroundings) -> str:
    """What taint eviction will do to a pod on a node that is lost (behaviour C2)."""
    taints = taint_timers.executing(node.spec.taints)
    if not taints:
        return f"it stays while its node has no NoExecute taint {node_taints.UNREACHABLE}"
    step = taint_timers.decide(taints, pod.spec.tolerations, counting=False)
    if step.act == "cancel":
        return f"it stays: it tolerates {node_taints.UNREACHABLE} for ever"
    since = max((each.time_added for each in taints if each.time_added), default=None)
    if step.act == "evict" or since is None:
        return "it is deleted soon, unless its node comes back"
    leaves = times.parse(since) + timedelta(seconds=step.seconds)
    return f"it is deleted at about {when(leaves, around.now)}, unless its node comes back"


def _recovery(pod: Pod, around: Surroundings) -> Iterator[Point]:
    configuration = around.recovery.configuration
    if configuration is None:
        yield Point("recovery", around.recovery.text)
        return
    if around.node_hidden:
        yield Point("recovery", surroundings.NODE_HIDDEN)
        return
    yield from _decision(pod, around, configuration)
    yield from around.recovery.points
    if _hangs(pod, around):
        yield Point("hint", "its node is alive, so look there: the kubelet's log, the containers")


def _decision(pod: Pod, around: Surroundings, configuration: Configuration) -> Iterator[Point]:
    decision = zombie.decide(
        pod,
        around.node,
        configuration.failure_recovery,
        namespace=around.labels(pod.metadata.namespace),
        silence=zombie.UNWATCHED,
        now=around.now,
        promise=around.promise(pod),
    )
    if isinstance(decision, zombie.Ignore):
        yield Point("recovery", f"nothing is forced: {decision.text}")
        return
    yield Point("recovery", decision.text)
    if reservation := surroundings.reservation(configuration):
        yield Point("but", reservation)
    elif not isinstance(decision, zombie.Wait) or decision.until is None:
        held = [each for each in around.of_node if each.reason == recovery_bounds.HELD]
        yield from (Point("held", each.text) for each in surroundings.told(held, around.now))


def _hangs(pod: Pod, around: Surroundings) -> bool:
    """Terminating for longer than it was given, on a node that could have ended it."""
    late = around.now - zombie.deleted_at(pod) > timedelta()
    alive = around.node is not None and not zombie.is_unreachable(around.node)
    return late and alive and not pod.is_terminal
