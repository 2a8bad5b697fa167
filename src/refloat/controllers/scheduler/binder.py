# SPDX-License-Identifier: Apache-2.0
"""A plain binder: any pod to any node that is ready, untainted and has room.

It knows neither requests nor affinity nor tolerations, so all pods are alike
to it, and a place that becomes free is offered to the pod that has waited
longest, not to all. A taint for not being ready that stands on a node that is
ready is overlooked: the API server puts it on every new node, and it takes a
controller for nodes to remove it.
"""

from collections import Counter

from refloat.api import structs, times
from refloat.api.core import Node, Pod
from refloat.base.clock import Clock
from refloat.base.rand import Rand
from refloat.client import errors
from refloat.client.contract import Client
from refloat.client.kinds import PODS
from refloat.runtime import cache
from refloat.runtime.informer import Informer
from refloat.runtime.queue import Queue
from refloat.runtime.reconcile import DONE, Result

SCHEDULER = "default-scheduler"
NOT_READY = "node.kubernetes.io/not-ready"

# Effects that keep new pods away.
_REPELLING = ("NoSchedule", "NoExecute")


class Binder:
    """The reconciler; a key is a pod's."""

    def __init__(
        self,
        client: Client,
        pods: Informer[Pod],
        nodes: Informer[Node],
        *,
        clock: Clock,
        rand: Rand,
    ) -> None:
        self._client = client
        self._pods = pods
        self._nodes = nodes
        self._clock = clock
        self._rand = rand
        self._queue: Queue[str] | None = None
        self._place: dict[str, str] = {}  # pod's uid -> node, also of binds still on their way
        self._unsure: dict[str, None] = {}  # those of them whose bind was not answered
        self._held: Counter[str] = Counter()  # node -> how many of those
        self._names: list[str] = []  # of all nodes, in order
        self._next = -1  # whose turn it is; chance says who begins
        self._waiting: dict[str, None] = {}  # pods for which there was no room, oldest first

    def feed(self, queue: Queue[str]) -> None:
        """Put into this queue whatever is to be looked at, from now on."""
        self._queue = queue
        self._nodes.add_handler(self._saw_node)
        self._pods.add_handler(self._saw_pod)

    def _saw_pod(self, old: Pod | None, new: Pod | None) -> None:
        pod = new if new is not None else old
        assert pod is not None
        key = cache.key_of(pod)
        if new is None or new.is_terminal or (new.is_terminating and not new.spec.node_name):
            self._waiting.pop(key, None)
            if self._free(pod.metadata.uid):
                self._wake(1)
        elif new.spec.node_name:
            self._waiting.pop(key, None)
            self._unsure.pop(pod.metadata.uid, None)
            self._take(pod.metadata.uid, new.spec.node_name)
        elif _is_ours(new) and key not in self._waiting:
            self._add(key)

    def _saw_node(self, old: Node | None, new: Node | None) -> None:
        self._names = sorted(self._nodes.cache.keys())
        if new is not None and _objection(new) is None:
            self._wake(max(0, _max_pods(new) - self._held[new.metadata.name]))

    def _wake(self, count: int) -> None:
        """Look again at so many of those that wait."""
        for key in list(self._waiting)[:count]:
            del self._waiting[key]
            self._add(key)

    def _add(self, key: str) -> None:
        if self._queue is not None:
            self._queue.add(key)

    def _take(self, uid: str, node: str) -> None:
        if self._place.get(uid) != node:
            self._free(uid)
            self._place[uid] = node
            self._held[node] += 1

    def _free(self, uid: str) -> bool:
        node = self._place.pop(uid, None)
        self._unsure.pop(uid, None)
        if node is not None:
            self._held[node] -= 1
        return node is not None

    async def reconcile(self, key: str) -> Result:
        pod = self._pods.cache.get(key)
        if pod is None or not _is_ours(pod):
            return DONE
        uid = pod.metadata.uid
        if uid in self._place and uid not in self._unsure:
            return DONE  # bound; the watch has not told yet
        node = self._place.get(uid) or self._choose()
        if node is None:
            self._waiting[key] = None
            await self._refuse(pod)
            return DONE
        # Before anything is awaited, so that no other pod gets the place.
        self._take(uid, node)
        await self._bind(pod, node)
        return DONE

    async def _bind(self, pod: Pod, node: str) -> None:
        meta = pod.metadata
        self._unsure[meta.uid] = None
        try:
            await self._client.bind(meta.name, node, namespace=meta.namespace, uid=meta.uid)
        except (errors.NotFound, errors.Conflict):
            # It is gone, bound already or being deleted. The watch tells which,
            # and corrects who holds the place.
            self._unsure.pop(meta.uid, None)
        except errors.Unreachable:
            self._give_back(meta.uid)
            raise
        except (errors.Timeout, errors.Unavailable):
            # It may have happened: the place is kept, and asked for again.
            raise
        except errors.ClientError:
            self._give_back(meta.uid)
            raise
        else:
            self._unsure.pop(meta.uid, None)

    def _give_back(self, uid: str) -> None:
        if self._free(uid):
            self._wake(1)

    def _choose(self) -> str | None:
        """The next node, in turn, that takes a pod."""
        count = len(self._names)
        if self._next < 0 and count:
            self._next = self._rand.below(count)
        for step in range(count):
            place = (self._next + step) % count
            name = self._names[place]
            if self._objection(name) is None:
                self._next = place + 1
                return name
        return None

    def _objection(self, name: str) -> str | None:
        node = self._nodes.cache.get(name)
        if node is None:
            return "node(s) were not found"
        return _objection(node) or (
            "Too many pods" if self._held[name] >= _max_pods(node) else None
        )

    async def _refuse(self, pod: Pod) -> None:
        """Say on the pod why it has no node."""
        message = self._message()
        held = structs.find(pod.status.conditions, "PodScheduled")
        if held is not None and (held.status, held.message) == ("False", message):
            return
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "observedGeneration": pod.metadata.generation,
        }
        if held is None or held.status != "False":
            condition["lastTransitionTime"] = times.format_time(self._clock.now())
        meta = pod.metadata
        patch = {"metadata": {"uid": meta.uid}, "status": {"conditions": [condition]}}
        try:
            await self._client.patch(
                PODS,
                meta.name,
                patch,
                patch_type="strategic",
                namespace=meta.namespace,
                subresource="status",
            )
        except (errors.NotFound, errors.Conflict):
            self._waiting.pop(cache.key_of(pod), None)

    def _message(self) -> str:
        """In the words of Kubernetes' scheduler."""
        if not self._names:
            return "no nodes available to schedule pods"
        found = Counter(filter(None, map(self._objection, self._names)))
        reasons = sorted(f"{count} {text}" for text, count in found.items())
        total = len(self._names)
        return f"0/{total} nodes are available: {', '.join(reasons)}."


def _is_ours(pod: Pod) -> bool:
    spec = pod.spec
    return (
        not spec.node_name
        and not spec.scheduling_gates
        and spec.scheduler_name == SCHEDULER
        and not pod.is_terminating
        and not pod.is_terminal
    )


def _objection(node: Node) -> str | None:
    """Why a node takes no pod at all."""
    if node.spec.unschedulable:
        return "node(s) were unschedulable"
    ready = structs.is_true(node.status.conditions, "Ready")
    for taint in node.spec.taints or ():
        stale = ready and taint.key == NOT_READY
        if taint.effect in _REPELLING and not stale:
            return "node(s) had untolerated taint(s)"
    return None if ready else "node(s) were not ready"


def _max_pods(node: Node) -> int:
    text = (node.status.allocatable or {}).get("pods", "0")
    return int(text) if text.isdigit() else 0
