# SPDX-License-Identifier: Apache-2.0
"""The closed lists of codes that explain prints: states of objects, and ends of pods.

Programs and alerts rely on the spelling, so a code is never renamed and never used for
another state. `docs/explain.md` has both tables with a transcript of each state.
"""

from enum import StrEnum


class Code(StrEnum):
    """The state of a Job, pod, node or CronJob: what it is, then why."""

    # Not started
    SUSPENDED = "Suspended/ByUser"
    SUSPENDED_QUEUED = "Suspended/WaitingForQueue"
    NO_CONTROLLER = "NotStarted/NoController"
    NEW = "NotStarted/JustCreated"
    OTHER_CONTROLLER = "NotStarted/ManagedByOther"
    QUOTA = "Refused/QuotaExceeded"
    WEBHOOK = "Refused/Webhook"
    ADMISSION = "Refused/Admission"
    WRONG_POLICY = "Refused/InvalidBackoffPolicy"

    # Pods that are not running yet
    NO_SCHEDULER = "Pending/NoScheduler"
    SCHEDULING_GATES = "Pending/SchedulingGates"
    INSUFFICIENT = "Pending/InsufficientResources"
    TAINTS = "Pending/Taints"
    AFFINITY = "Pending/Affinity"
    SPREAD = "Pending/TopologySpread"
    CLAIM = "Pending/UnboundClaim"
    PORTS = "Pending/HostPort"
    NO_NODES = "Pending/NoNodes"
    UNSCHEDULABLE = "Pending/Unschedulable"
    PREEMPTING = "Pending/WaitingForPreemption"
    NOT_ACCEPTED = "Pending/NotAcceptedByNode"
    IMAGE_MISSING = "Pending/ImageMissing"
    IMAGE_UNAUTHORIZED = "Pending/ImageUnauthorized"
    IMAGE_NAME = "Pending/InvalidImageName"
    IMAGE_BACK_OFF = "Pending/ImagePullFailed"
    IMAGE_PULLING = "Pending/ImagePulling"
    CONFIG_MAP = "Pending/ConfigMapMissing"
    SECRET = "Pending/SecretMissing"  # noqa: S105 - a code
    CONTAINER_CONFIG = "Pending/ContainerConfigError"
    MULTI_ATTACH = "Pending/MultiAttach"
    MOUNT = "Pending/VolumeNotMounted"
    START_ERROR = "Pending/StartError"
    CREATING = "Pending/ContainerCreating"
    INIT = "Pending/InitContainer"

    # Running
    RUNNING = "Running/Active"
    NOT_READY = "Running/NotReady"
    RUNS_ON = "Running/OtherContainerRunsOn"
    PARALLELISM = "Running/ParallelismFull"
    CRASH_LOOP = "Running/CrashLoopBackOff"
    NODE_LOST = "Running/NodeLost"
    SCALING_DOWN = "Running/TooManyPods"

    # Waiting before the next pod
    CREATING_PODS = "Waiting/PodsNotCreatedYet"
    BACK_OFF = "Waiting/BackOff"
    IGNORE_LOOP = "Waiting/IgnoredAgainAndAgain"
    TERMINATING = "Waiting/TerminatingPod"
    TERMINATING_OVERDUE = "Waiting/TerminatingPodOverdue"
    TERMINATING_FINALIZERS = "Waiting/TerminatingPodHeldByFinalizers"
    TERMINATING_LOST_NODE = "Waiting/TerminatingPodOnLostNode"
    TERMINATING_RECOVERY = "Waiting/TerminatingPodInRecovery"
    UNCOUNTED = "Waiting/PodsNotCountedYet"

    # Ending
    DECIDED = "Ending/Decided"
    FAILING = "Ending/FailureWaitsForPods"
    SUCCEEDING = "Ending/SuccessWaitsForPods"
    DELETING = "Deleting/WaitingForDependents"
    DELETING_FINALIZERS = "Deleting/HeldByFinalizers"

    # Finished
    COMPLETE = "Succeeded/AllCompletions"
    SUCCESS_POLICY = "Succeeded/SuccessPolicy"
    RULE = "Failed/RuleMatched"
    BACKOFF_LIMIT = "Failed/BackoffLimit"
    FAILED_INDEXES = "Failed/FailedIndexes"
    MAX_FAILED_INDEXES = "Failed/MaxFailedIndexes"
    DEADLINE = "Failed/Deadline"
    FAILED_OTHER = "Failed/Other"
    POD_SUCCEEDED = "Succeeded/Pod"
    POD_FAILED = "Failed/Pod"

    # Nodes
    NODE_READY = "Ready/Node"
    NODE_CORDONED = "Ready/Cordoned"
    NODE_NOT_READY = "NotReady/KubeletReports"
    NODE_SILENT = "Lost/Silent"
    NODE_UNKNOWN = "NotReady/NeverReported"
    NODE_FORCE_EVICTION = "Lost/ForceEviction"

    # CronJobs
    CRON_SCHEDULED = "Scheduled/CronJob"
    CRON_SUSPENDED = "Suspended/CronJob"
    CRON_FORBIDDEN = "Waiting/ConcurrencyForbidden"
    CRON_MISSED = "Missed/StartingDeadline"


class Cause(StrEnum):
    """How a pod ended, or is being ended."""

    COMPLETED = "Completed"
    EXIT_CODE = "ExitCode"
    SIGNAL = "Signal"
    OOM = "OOMKilled"
    START_ERROR = "StartError"
    DEADLINE = "PodDeadlineExceeded"
    PREEMPTED = "PreemptedByScheduler"
    PREEMPTED_BY_NODE = "PreemptedByKubelet"
    API_EVICTION = "EvictedByApi"
    TAINT_EVICTION = "EvictedByTaint"
    NODE_PRESSURE = "EvictedByNodePressure"
    STORAGE_LIMIT = "EvictedByStorageLimit"
    NODE_SHUTDOWN = "NodeShutdown"
    NODE_GONE = "NodeGone"
    RECOVERY = "ForcedByRecovery"
    FORCE_EVICTION = "ForceEviction"
    SELF_FENCED = "SelfFenced"
    ADMISSION = "RefusedByKubelet"
    DELETED = "Deleted"
    UNKNOWN = "Unknown"


MEANINGS: dict[Code, str] = {
    Code.SUSPENDED: "`spec.suspend` is true; no pod is created.",
    Code.SUSPENDED_QUEUED: "A queue (Kueue) suspended the Job and has not admitted it yet.",
    Code.NO_CONTROLLER: "No Job controller has acted on the Job.",
    Code.NEW: "The Job is a few seconds old.",
    Code.OTHER_CONTROLLER: "`spec.managedBy` names a controller that has not acted.",
    Code.QUOTA: "A ResourceQuota refuses the pods.",
    Code.WEBHOOK: "An admission webhook refuses the pods.",
    Code.ADMISSION: "The API server refuses the pods.",
    Code.WRONG_POLICY: "The annotation `refloat.dev/backoff-policy` is not valid.",
    Code.NO_SCHEDULER: "No scheduler has looked at the pod.",
    Code.SCHEDULING_GATES: "The pod has scheduling gates that nothing has removed.",
    Code.INSUFFICIENT: "No node has enough free resources.",
    Code.TAINTS: "All nodes that fit have taints that the pod does not tolerate.",
    Code.AFFINITY: "No node matches the node selector or the affinity.",
    Code.SPREAD: "Topology spread constraints exclude all nodes.",
    Code.CLAIM: "A PersistentVolumeClaim is missing or not bound.",
    Code.PORTS: "The host port is taken on all nodes that fit.",
    Code.NO_NODES: "The cluster has no node.",
    Code.UNSCHEDULABLE: "The scheduler found no node, for another reason.",
    Code.PREEMPTING: "The scheduler is removing other pods to make room.",
    Code.NOT_ACCEPTED: "The kubelet of the pod's node has not accepted the pod.",
    Code.IMAGE_MISSING: "The image does not exist.",
    Code.IMAGE_UNAUTHORIZED: "The registry refuses the image without the right credentials.",
    Code.IMAGE_NAME: "The image name is not valid.",
    Code.IMAGE_BACK_OFF: "The image could not be pulled, for another reason.",
    Code.IMAGE_PULLING: "The image is being pulled.",
    Code.CONFIG_MAP: "A ConfigMap, or a key of it, is missing.",
    Code.SECRET: "A Secret, or a key of it, is missing.",
    Code.CONTAINER_CONFIG: "The container cannot be created from its configuration.",
    Code.MULTI_ATTACH: "A volume is still attached to another node.",
    Code.MOUNT: "A volume could not be attached or mounted.",
    Code.START_ERROR: "The container could not be started.",
    Code.CREATING: "The kubelet is preparing the pod.",
    Code.INIT: "An init container runs.",
    Code.RUNNING: "The containers run.",
    Code.NOT_READY: "The containers run, and the pod is not Ready.",
    Code.RUNS_ON: "A container has ended, and the pod goes on until its other containers end.",
    Code.PARALLELISM: "As many pods run as `spec.parallelism` allows; the rest of the work waits.",
    Code.CRASH_LOOP: "A container failed and the kubelet waits before it restarts the container.",
    Code.NODE_LOST: "The node of a pod has stopped reporting; the pod may still run.",
    Code.SCALING_DOWN: "More pods run than the Job needs.",
    Code.CREATING_PODS: "Pods are missing and the Job controller is about to create them.",
    Code.BACK_OFF: "Pods failed; the Job controller waits before it creates the next.",
    Code.IGNORE_LOOP: "Pods fail and an Ignore rule discards each failure; no limit ends this.",
    Code.TERMINATING: "A deleted pod still has time to end; its replacement waits.",
    Code.TERMINATING_OVERDUE: "A deleted pod has not ended in its grace period; the node lives.",
    Code.TERMINATING_FINALIZERS: "A deleted pod has ended; finalizers keep its object.",
    Code.TERMINATING_LOST_NODE: "A deleted pod is on a lost node, and nothing will free it.",
    Code.TERMINATING_RECOVERY: "A deleted pod is on a lost node; zombie recovery will free it.",
    Code.UNCOUNTED: "Pods have ended and the Job controller has not counted them yet.",
    Code.DECIDED: "The end of the Job is decided, and the Job controller is about to write it.",
    Code.FAILING: "The Job has failed and waits for its last pods to end.",
    Code.SUCCEEDING: "The Job has succeeded and waits for its last pods to end.",
    Code.DELETING: "The object is being deleted after its dependents.",
    Code.DELETING_FINALIZERS: "The object is being deleted, and finalizers keep it.",
    Code.COMPLETE: "All completions were reached.",
    Code.SUCCESS_POLICY: "A rule of the success policy was met.",
    Code.RULE: "A FailJob rule matched the failure of a pod.",
    Code.BACKOFF_LIMIT: "More pods failed than `spec.backoffLimit` allows.",
    Code.FAILED_INDEXES: "All indexes ended, and some of them failed.",
    Code.MAX_FAILED_INDEXES: "More indexes failed than `spec.maxFailedIndexes` allows.",
    Code.DEADLINE: "The Job was active for longer than `spec.activeDeadlineSeconds`.",
    Code.FAILED_OTHER: "Another controller failed the Job.",
    Code.POD_SUCCEEDED: "The pod ended well.",
    Code.POD_FAILED: "The pod failed; the cause says how.",
    Code.NODE_READY: "The node is Ready.",
    Code.NODE_CORDONED: "The node is Ready and takes no new pods.",
    Code.NODE_NOT_READY: "The kubelet reports that the node is not ready.",
    Code.NODE_SILENT: "The kubelet has stopped reporting.",
    Code.NODE_UNKNOWN: "The node has not reported yet.",
    Code.NODE_FORCE_EVICTION: "An administrator declared the node down.",
    Code.CRON_SCHEDULED: "The CronJob waits for its next time.",
    Code.CRON_SUSPENDED: "`spec.suspend` of the CronJob is true.",
    Code.CRON_FORBIDDEN: "A Job still runs and `concurrencyPolicy` is Forbid.",
    Code.CRON_MISSED: "The CronJob missed its time and the starting deadline.",
}

CAUSES: dict[Cause, str] = {
    Cause.COMPLETED: "All containers ended with exit code 0.",
    Cause.EXIT_CODE: "A container ended with an exit code that is not 0.",
    Cause.SIGNAL: "A signal ended a container (exit code 128 + signal).",
    Cause.OOM: "A container used more memory than its limit, or the node ran out.",
    Cause.START_ERROR: "A container could not be started.",
    Cause.DEADLINE: "The pod's own `activeDeadlineSeconds` is over.",
    Cause.PREEMPTED: "The scheduler removed the pod for one of higher priority.",
    Cause.PREEMPTED_BY_NODE: "The kubelet removed the pod for a critical one.",
    Cause.API_EVICTION: "A client evicted the pod, as `kubectl drain` does.",
    Cause.TAINT_EVICTION: "The node got a NoExecute taint that the pod does not tolerate.",
    Cause.NODE_PRESSURE: "The kubelet evicted the pod because the node ran low.",
    Cause.STORAGE_LIMIT: "The pod used more local storage than its limit.",
    Cause.NODE_SHUTDOWN: "The node shut down.",
    Cause.NODE_GONE: "The pod's node no longer exists, or the pod never had one.",
    Cause.RECOVERY: "Zombie recovery marked the pod Failed on a lost node.",
    Cause.FORCE_EVICTION: "Force eviction marked the pod Failed on a node declared down.",
    Cause.SELF_FENCED: "The node ended the pod because it lost the API server.",
    Cause.ADMISSION: "The kubelet refused the pod.",
    Cause.DELETED: "A client deleted the pod.",
    Cause.UNKNOWN: "Nothing says how the pod ended.",
}


ENDED = frozenset(
    (
        Code.DECIDED,
        Code.FAILING,
        Code.SUCCEEDING,
        Code.DELETING,
        Code.DELETING_FINALIZERS,
        Code.COMPLETE,
        Code.SUCCESS_POLICY,
        Code.RULE,
        Code.BACKOFF_LIMIT,
        Code.FAILED_INDEXES,
        Code.MAX_FAILED_INDEXES,
        Code.DEADLINE,
        Code.FAILED_OTHER,
    )
)
"""The end of the Job is decided: no more failures count."""


class Severity(StrEnum):
    """Whether a person must act."""

    ACT = "act"
    """Nothing goes on until a person acts."""
    WAIT = "wait"
    """The state passes by itself, or with other work."""
    FINE = "fine"


_ACT = frozenset(
    (
        Code.NO_CONTROLLER,
        Code.OTHER_CONTROLLER,
        Code.QUOTA,
        Code.WEBHOOK,
        Code.ADMISSION,
        Code.WRONG_POLICY,
        Code.NO_SCHEDULER,
        Code.INSUFFICIENT,
        Code.TAINTS,
        Code.AFFINITY,
        Code.SPREAD,
        Code.CLAIM,
        Code.NO_NODES,
        Code.UNSCHEDULABLE,
        Code.NOT_ACCEPTED,
        Code.IMAGE_MISSING,
        Code.IMAGE_UNAUTHORIZED,
        Code.IMAGE_NAME,
        Code.IMAGE_BACK_OFF,
        Code.CONFIG_MAP,
        Code.SECRET,
        Code.CONTAINER_CONFIG,
        Code.MOUNT,
        Code.START_ERROR,
        Code.IGNORE_LOOP,
        Code.TERMINATING_OVERDUE,
        Code.TERMINATING_FINALIZERS,
        Code.TERMINATING_LOST_NODE,
        Code.DELETING_FINALIZERS,
        Code.NODE_SILENT,
        Code.NODE_NOT_READY,
        Code.CRON_MISSED,
    )
)
_FINE = frozenset(
    (
        Code.NEW,
        Code.SUSPENDED,
        Code.SUSPENDED_QUEUED,
        Code.CREATING,
        Code.IMAGE_PULLING,
        Code.INIT,
        Code.RUNNING,
        Code.PARALLELISM,
        Code.SCALING_DOWN,
        Code.CREATING_PODS,
        Code.UNCOUNTED,
        Code.DECIDED,
        Code.COMPLETE,
        Code.SUCCESS_POLICY,
        Code.RULE,
        Code.BACKOFF_LIMIT,
        Code.FAILED_INDEXES,
        Code.MAX_FAILED_INDEXES,
        Code.DEADLINE,
        Code.FAILED_OTHER,
        Code.POD_SUCCEEDED,
        Code.POD_FAILED,
        Code.NODE_READY,
        Code.NODE_CORDONED,
        Code.NODE_UNKNOWN,
        Code.CRON_SCHEDULED,
        Code.CRON_SUSPENDED,
    )
)


def severity(code: Code) -> Severity:
    if code in _ACT:
        return Severity.ACT
    return Severity.FINE if code in _FINE else Severity.WAIT
