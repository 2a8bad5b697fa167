# SPDX-License-Identifier: Apache-2.0
"""Why a pod ended, in one word, whoever said so and wherever (KEP-3329, first design).

The KEP has one place for it, the pod's status.reason, and has whoever deletes a
pod say why. Kubernetes has no such field in its deletes, and its kubelets use
status.reason for endings of their own. So there are three places, and the first
that says something is believed:

1. status.reason: the kubelet that ended the pod by itself, or the reason of the
   delete that ended it, which an embedded server puts there;
2. of a pod that is being deleted, the annotation `refloat.dev/deletion-reason`,
   which is written before a delete where the server has no place for a reason;
3. the condition DisruptionTarget, if True.

docs/reasons.md has the table of causes. What matches a reason is in
`backoff_policy`.
"""

from refloat.api import structs
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.policy import disruption
from refloat.policy.switches import Switches

ANNOTATION = "refloat.dev/deletion-reason"

NONE = ""
"""Of a pod that nobody ended, as a policy writes it."""

PREEMPTION = "Preemption"
NODE_PRESSURE_EVICTION = "NodePressureEviction"
TAINT_EVICTION = "TaintEviction"
EVICTION_API = "EvictionAPI"
NODE_LOST = "NodeLost"
FORCE_EVICTION = "ForceEviction"
ORPHANED_POD = "OrphanedPod"
NODE_OUT_OF_SERVICE = "NodeOutOfService"
NODE_SHUTDOWN = "NodeShutdown"
SELF_FENCED = "SelfFenced"

# What the condition says, and what the KEP calls it. Any other reason stands
# for itself, so that a disruption of a kind that is new is still one.
_OF_DISRUPTIONS = {
    "PreemptionByScheduler": PREEMPTION,
    "DeletionByTaintManager": TAINT_EVICTION,
    "DeletionByDeviceTaintManager": TAINT_EVICTION,
    "EvictionByEvictionAPI": EVICTION_API,
    "DeletionByPodGC": ORPHANED_POD,
    "DeletionByForceEviction": FORCE_EVICTION,
}

# A kubelet's own words, and what the KEP calls them where the kubelet ended a
# pod for the node's sake. It says Evicted also of pods that used too much.
SECOND_NAMES = {
    "Evicted": NODE_PRESSURE_EVICTION,
    "Preempting": PREEMPTION,
    "Terminated": NODE_SHUTDOWN,
}


def given(reason: str, switches: Switches) -> str:
    """What Refloat's own components say when they delete a pod: nothing while the gate is off."""
    return reason if switches.retriable_and_non_retriable_failures else NONE


def noted(pod: Pod, reason: str) -> Object:
    """What goes with the status that makes a pod fail: why, if nobody has said it."""
    return {"reason": reason} if reason and of(pod) == (NONE,) else {}


def of(pod: Pod) -> tuple[str, ...]:
    """The pod's reason, then what it is called as well; never empty, `NONE` if there is none."""
    target = structs.find(pod.status.conditions, disruption.TARGET)
    disrupted = target.reason if target is not None and target.status == "True" else ""
    said = pod.status.reason or _of_its_delete(pod)
    if not said:
        return (_OF_DISRUPTIONS.get(disrupted, disrupted),)
    also = SECOND_NAMES.get(said)
    if also is None or disrupted != disruption.BY_KUBELET:
        return (said,)
    return (said, also)


def _of_its_delete(pod: Pod) -> str:
    """Whoever may annotate a pod could else call its own failure a disruption."""
    return (pod.metadata.annotations or {}).get(ANNOTATION, "") if pod.is_terminating else ""
