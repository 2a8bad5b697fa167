# SPDX-License-Identifier: Apache-2.0
"""Why a pod ended, in one word (KEP-3329, first design).

The KEP has one place for the reason, the pod's status.reason, and lets the client that deletes a
pod give the reason. Kubernetes has no such field in deletes, and kubelets use status.reason for
reasons of their own. So there are three places, and the first one with a reason counts:

1. status.reason: from the kubelet that ended the pod, or from the delete that ended the pod, if an
   embedded server stored the reason there;
2. for a pod that is being deleted, the annotation `refloat.dev/deletion-reason`, which Refloat
   writes before a delete where the server has no place for a reason;
3. the condition DisruptionTarget, if True.

docs/reasons.md has the table of causes. `backoff_policy` matches reasons.
"""

from refloat.api import structs
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.policy.job.job_gates import JobGates
from refloat.policy.scheduling import disruption_target

ANNOTATION = "refloat.dev/deletion-reason"

NONE = ""
"""The reason of a pod that ended by itself, as a policy writes it."""

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

# Reasons of the condition, and the KEP's names for them. Any other reason stands for itself, so
# that a new kind of disruption is still one.
_OF_DISRUPTIONS = {
    "PreemptionByScheduler": PREEMPTION,
    "DeletionByTaintManager": TAINT_EVICTION,
    "DeletionByDeviceTaintManager": TAINT_EVICTION,
    "EvictionByEvictionAPI": EVICTION_API,
    "DeletionByPodGC": ORPHANED_POD,
    "DeletionByForceEviction": FORCE_EVICTION,
}

# A kubelet's own words, and the KEP's names for them where the kubelet ended a pod for the sake of
# the node. Kubelets also use Evicted for pods that used too much.
SECOND_NAMES = {
    "Evicted": NODE_PRESSURE_EVICTION,
    "Preempting": PREEMPTION,
    "Terminated": NODE_SHUTDOWN,
}


def delete_reason(reason: str, job_gates: JobGates) -> str:
    """The reason that Refloat sends with a delete: none while the gate is off."""
    return reason if job_gates.retriable_and_non_retriable_failures else NONE


def status_reason(pod: Pod, reason: str) -> Object:
    """The reason for the status that marks a pod Failed, if the pod has no reason."""
    return {"reason": reason} if reason and of(pod) == (NONE,) else {}


def of(pod: Pod) -> tuple[str, ...]:
    """The pod's reason, then its second name; `NONE` without a reason."""
    target = structs.find(pod.status.conditions, disruption_target.TARGET)
    disrupted = target.reason if target is not None and target.status == "True" else ""
    # Without the deletion, a user who may annotate a pod could call its own failure a disruption.
    annotations = pod.metadata.annotations if pod.is_terminating else None
    reason = pod.status.reason or (annotations or {}).get(ANNOTATION, "")
    if not reason:
        return (_OF_DISRUPTIONS.get(disrupted, disrupted),)
    also = SECOND_NAMES.get(reason)
    if also is None or disrupted != disruption_target.BY_KUBELET:
        return (reason,)
    return (reason, also)
