# SPDX-License-Identifier: Apache-2.0
"""The condition that says: this pod ends because somebody wants its place, not by its own doing.

One form for all who write it (behaviour F), so that what a podFailurePolicy
reads does not depend on who wrote it. Who writes it, and when, is elsewhere.
"""

from datetime import datetime

from refloat.api import structs, times
from refloat.api.core import Pod
from refloat.api.meta import Object

TARGET = "DisruptionTarget"

BY_KUBELET = "TerminationByKubelet"


def condition(pod: Pod, reason: str, message: str, *, now: datetime) -> Object | None:
    """What to patch in to make it so; none when it stands there already (behaviour 0.5).

    The time is left out where the status stays: then a strategic merge keeps
    the old one. For a later generation alone it is not written anew: to be
    deleted is one.
    """
    held = structs.find(pod.status.conditions, TARGET)
    wanted: Object = {
        "type": TARGET,
        "status": "True",
        "reason": reason,
        "message": message,
        "observedGeneration": pod.metadata.generation,
    }
    if held is None or held.status != "True":
        return {**wanted, "lastTransitionTime": times.format_time(now)}
    return None if (held.reason, held.message) == (reason, message) else wanted
