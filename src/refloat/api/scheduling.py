# SPDX-License-Identifier: Apache-2.0
"""What controllers read of priority classes (group scheduling.k8s.io).

See `structs` for what holds for all structs.
"""

from refloat.api.structs import ApiObject


class PriorityClass(ApiObject, frozen=True):
    value: int = 0
    global_default: bool = False
    preemption_policy: str | None = None
