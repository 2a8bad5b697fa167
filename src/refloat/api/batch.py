# SPDX-License-Identifier: Apache-2.0
"""What controllers read of Jobs (group batch).

The whole spec but the pod template, which stays encoded: it is looked into
only when a pod is made of it. See `structs` for what holds for all structs.
"""

import msgspec

from refloat.api.structs import ApiObject, Conditions, LabelSelector, Partial, Texts, Time


class OnExitCodes(Partial, frozen=True):
    operator: str = ""
    values: tuple[int, ...] | None = None
    container_name: str | None = None


class OnPodCondition(Partial, frozen=True):
    type: str = ""
    status: str = ""


class PodFailurePolicyRule(Partial, frozen=True):
    action: str = ""
    on_exit_codes: OnExitCodes | None = None
    on_pod_conditions: tuple[OnPodCondition, ...] | None = None


class PodFailurePolicy(Partial, frozen=True):
    rules: tuple[PodFailurePolicyRule, ...] | None = None


class BackoffPolicyRule(Partial, frozen=True):
    action: str = ""
    container_name: str | None = None
    container_exit_code_in: str | None = None
    container_exit_code_not_in: str | None = None
    pod_status_reason_in: tuple[str, ...] | None = None
    pod_status_reason_not_in: tuple[str, ...] | None = None


class BackoffPolicy(Partial, frozen=True):
    rules: tuple[BackoffPolicyRule, ...] | None = None


class SuccessPolicyRule(Partial, frozen=True):
    succeeded_indexes: str | None = None
    succeeded_count: int | None = None


class SuccessPolicy(Partial, frozen=True):
    rules: tuple[SuccessPolicyRule, ...] | None = None


class JobSpec(Partial, frozen=True):
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str | None = None
    active_deadline_seconds: int | None = None
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    max_failed_indexes: int | None = None
    ttl_seconds_after_finished: int | None = None
    suspend: bool | None = None
    manual_selector: bool | None = None
    managed_by: str | None = None
    pod_replacement_policy: str | None = None
    pod_failure_policy: PodFailurePolicy | None = None
    backoff_policy: BackoffPolicy | None = None
    success_policy: SuccessPolicy | None = None
    selector: LabelSelector | None = None
    template: msgspec.Raw = msgspec.Raw()


class UncountedTerminatedPods(Partial, frozen=True):
    succeeded: Texts | None = None
    failed: Texts | None = None


class JobStatus(Partial, frozen=True):
    conditions: Conditions = None
    start_time: Time | None = None
    completion_time: Time | None = None
    active: int = 0
    ready: int | None = None
    terminating: int | None = None
    succeeded: int = 0
    failed: int = 0
    completed_indexes: str = ""
    failed_indexes: str | None = None
    uncounted_terminated_pods: UncountedTerminatedPods | None = None


class Job(ApiObject, frozen=True):
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()
