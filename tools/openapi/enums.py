# SPDX-License-Identifier: Apache-2.0
"""The values that a field of few values may have, by the Go type of the field.

Only for people and editors to read: what is accepted, validation decides
(some of these types take more values than Kubernetes lists, some fewer).
"""

_FROM_MAX = " ".join(f"SIGRTMAX-{n}" for n in range(1, 15))
_FROM_MIN = " ".join(f"SIGRTMIN+{n}" for n in range(1, 16))

_VALUES = {
    "v1.AppArmorProfileType": "Localhost RuntimeDefault Unconfined",
    "v1.AzureDataDiskCachingMode": "None ReadOnly ReadWrite",
    "v1.AzureDataDiskKind": "Dedicated Managed Shared",
    "v1.BackoffPolicyAction": "Ignore Terminate",
    "v1.ClaimResourceStatus": "ControllerResizeInProgress ControllerResizeInfeasible"
    " NodeResizeInProgress NodeResizeInfeasible NodeResizePending",
    "v1.CompletionMode": "Indexed NonIndexed",
    "v1.DNSPolicy": "ClusterFirst ClusterFirstWithHostNet Default None",
    "v1.HostPathType": "BlockDevice CharDevice Directory DirectoryOrCreate File FileOrCreate"
    " Socket",
    "v1.IPFamily": "IPv4 IPv6",
    "v1.IPFamilyPolicy": "PreferDualStack RequireDualStack SingleStack",
    "v1.MountPropagationMode": "Bidirectional HostToContainer None",
    "v1.NamespacePhase": "Active Terminating",
    "v1.NodeInclusionPolicy": "Honor Ignore",
    "v1.NodePhase": "Pending Running Terminated",
    "v1.NodeSelectorOperator": "DoesNotExist Exists Gt In Lt NotIn",
    "v1.PersistentVolumeAccessMode": "ReadOnlyMany ReadWriteMany ReadWriteOnce ReadWriteOncePod",
    "v1.PersistentVolumeClaimModifyVolumeStatus": "InProgress Infeasible Pending",
    "v1.PersistentVolumeClaimPhase": "Bound Lost Pending",
    "v1.PersistentVolumeMode": "Block Filesystem",
    "v1.PersistentVolumePhase": "Available Bound Failed Pending Released",
    "v1.PersistentVolumeReclaimPolicy": "Delete Recycle Retain",
    "v1.PodFSGroupChangePolicy": "Always OnRootMismatch",
    "v1.PodFailurePolicyAction": "Count FailIndex FailJob Ignore",
    "v1.PodFailurePolicyOnExitCodesOperator": "In NotIn",
    "v1.PodPhase": "Failed Pending Running Succeeded Unknown",
    "v1.PodQOSClass": "BestEffort Burstable Guaranteed",
    "v1.PodReplacementPolicy": "Failed TerminatingOrFailed",
    "v1.PreemptionPolicy": "Never PreemptLowerPriority",
    "v1.ProcMountType": "Default Unmasked",
    "v1.Protocol": "SCTP TCP UDP",
    "v1.PullPolicy": "Always IfNotPresent Never",
    "v1.RestartPolicy": "Always Never OnFailure",
    "v1.SeccompProfileType": "Localhost RuntimeDefault Unconfined",
    "v1.ServiceAffinity": "ClientIP None",
    "v1.ServiceExternalTrafficPolicy": "Cluster Local",
    "v1.ServiceInternalTrafficPolicy": "Cluster Local",
    "v1.ServiceType": "ClusterIP ExternalName LoadBalancer NodePort",
    "v1.Signal": "SIGABRT SIGALRM SIGBUS SIGCHLD SIGCLD SIGCONT SIGFPE SIGHUP SIGILL SIGINT SIGIO"
    " SIGIOT SIGKILL SIGPIPE SIGPOLL SIGPROF SIGPWR SIGQUIT SIGSEGV SIGSTKFLT SIGSTOP SIGSYS"
    " SIGTERM SIGTRAP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR1 SIGUSR2 SIGVTALRM SIGWINCH SIGXCPU"
    f" SIGXFSZ SIGRTMAX {_FROM_MAX} SIGRTMIN {_FROM_MIN}",
    "v1.SupplementalGroupsPolicy": "Merge Strict",
    "v1.TaintEffect": "NoExecute NoSchedule PreferNoSchedule",
    "v1.TerminationMessagePolicy": "FallbackToLogsOnError File",
    "v1.TolerationOperator": "Equal Exists Gt Lt",
    "v1.URIScheme": "HTTP HTTPS",
    "v1.UnhealthyPodEvictionPolicyType": "AlwaysAllow IfHealthyBudget",
    "v1.UnsatisfiableConstraintAction": "DoNotSchedule ScheduleAnyway",
}

# Empty is a value of these, and not only what stands for none.
_EMPTY_TOO = frozenset({"v1.HostPathType", "v1.IPFamily"})

VALUES = {
    go: sorted(["", *listed.split()] if go in _EMPTY_TOO else listed.split())
    for go, listed in _VALUES.items()
}
"""The listed values of each Go type that has such a list, in order."""
