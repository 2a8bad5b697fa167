# SPDX-License-Identifier: Apache-2.0
"""The condition DisruptionTarget: a pod ends because of a disruption, not by itself.

One form for all writers (behaviour F), so that a podFailurePolicy sees the same condition from
each.
"""

from datetime import datetime

from refloat.api import structs, times
from refloat.api.core import Pod
from refloat.api.meta import Object

TARGET = "DisruptionTarget"

BY_KUBELET = "TerminationByKubelet"


def condition(pod: Pod, reason: str, message: str, *, now: datetime) -> Object | None:
    """The condition to patch in; None if the pod has the condition already (behaviour 0.5).

    The time is left out where the status stays: a strategic merge keeps the old one. A later
    generation alone is no reason to write: a deletion makes one.
    """
    current = structs.find(pod.status.conditions, TARGET)
    target: Object = {
        "type": TARGET,
        "status": "True",
        "reason": reason,
        "message": message,
        "observedGeneration": pod.metadata.generation,
    }
    if current is None or current.status != "True":
        return {**target, "lastTransitionTime": times.format_time(now)}
    return None if (current.reason, current.message) == (reason, message) else target
