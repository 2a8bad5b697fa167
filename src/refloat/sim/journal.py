# SPDX-License-Identifier: Apache-2.0
"""The history of each node, pod and Job of a simulation, in few words."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from refloat.api import structs
from refloat.api.batch import Job
from refloat.api.core import Node, Pod
from refloat.api.structs import ApiObject
from refloat.runtime.informer import Change

GONE = "gone"


def describe_pod(pod: Pod) -> str:
    """The phase of a pod and what keeps the pod from its end."""
    words = [pod.status.phase or "Pending"]
    if not pod.spec.node_name:
        words.append("unbound")
    if structs.is_true(pod.status.conditions, "Ready"):
        words.append("ready")
    if pod.is_terminating:
        words.append(f"terminating({pod.metadata.deletion_grace_period_seconds})")
    target = structs.find(pod.status.conditions, "DisruptionTarget")
    if target is not None:
        words.append(target.reason if target.status == "True" else "undisrupted")
    return " ".join(words)


def describe_job(job: Job) -> str:
    """The counts of a Job, its uncounted pods, and its conditions that are true."""
    status = job.status
    counts = f"active {status.active} terminating {status.terminating or 0}"
    counts += f" failed {status.failed} succeeded {status.succeeded}"
    uncounted = status.uncounted_terminated_pods
    if uncounted is not None and (uncounted.failed or uncounted.succeeded):
        counts += f" uncounted {len(uncounted.failed or ())}+{len(uncounted.succeeded or ())}"
    true = [each for each in status.conditions or () if each.status == "True"]
    return " ".join([counts, *(f"{each.type}={each.reason}" for each in true)])


def describe_node(node: Node) -> str:
    """The Ready condition of a node, and the taints in order."""
    ready = structs.find(node.status.conditions, "Ready")
    taints = sorted(
        f"{each.key.rpartition('/')[2]}:{each.effect}" for each in node.spec.taints or ()
    )
    return " ".join([f"Ready={ready.status if ready is not None else ''}", *taints])


@dataclass(slots=True)
class Journal:
    """Each change of each object, by uid, with its time."""

    clock: Callable[[], float]
    lines: dict[str, list[tuple[float, str]]] = field(default_factory=dict)
    objects: dict[str, ApiObject] = field(default_factory=dict)
    """The newest version of each object, also after its deletion."""

    def handler(self, describe: Callable[[Any], str]) -> Callable[[Change[Any]], None]:
        """A handler for an informer."""

        def handle(change: Change[Any]) -> None:
            uid = change.current.metadata.uid
            text = GONE if change.new is None else describe(change.new)
            lines = self.lines.setdefault(uid, [])
            if not lines or lines[-1][1] != text:
                lines.append((self.clock(), text))
            self.objects[uid] = change.current

        return handle
