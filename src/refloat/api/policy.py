# SPDX-License-Identifier: Apache-2.0
"""What controllers read of disruption budgets (group policy).

See `structs` for what holds for all structs. The decisions of Refloat's own
policies are in the package `refloat.policy`, not here.
"""

from refloat.api.structs import ApiObject, Conditions, LabelSelector, Map, Partial


class PodDisruptionBudgetSpec(Partial, frozen=True):
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PodDisruptionBudgetStatus(Partial, frozen=True):
    observed_generation: int = 0
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    disrupted_pods: Map | None = None
    conditions: Conditions = None


class PodDisruptionBudget(ApiObject, frozen=True):
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
