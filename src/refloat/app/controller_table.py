# SPDX-License-Identifier: Apache-2.0
"""All controllers by name, each with the `build` of its package.

The embedded cluster, the manager and the simulated clusters of the tests start
controllers from this table and in no other way.
"""

from collections.abc import Iterable

from refloat.app import controller_names as names
from refloat.controllers import (
    attach_detach,
    disruption,
    failure_recovery,
    force_eviction,
    garbage,
    job,
    namespaces,
    node_lifecycle,
    pod_gc,
    scheduler,
    taint_eviction,
    ttl,
    volume_binding,
)
from refloat.runtime.controller_env import Build, ControllerEnv
from refloat.runtime.manager import Worker

CONTROLLERS: dict[str, Build] = {
    names.ATTACH_DETACH: attach_detach.build,
    names.DISRUPTION: disruption.build,
    names.FAILURE_RECOVERY: failure_recovery.build,
    names.FORCE_EVICTION: force_eviction.build,
    names.GARBAGE: garbage.build,
    names.JOB: job.build,
    names.NAMESPACE: namespaces.build,
    names.NODE_LIFECYCLE: node_lifecycle.build,
    names.POD_GC: pod_gc.build,
    names.SCHEDULER: scheduler.build,
    names.TAINT_EVICTION: taint_eviction.build,
    names.TTL: ttl.build,
    names.VOLUME_BINDING: volume_binding.build,
}


def build(env: ControllerEnv, controllers: Iterable[str]) -> list[Worker]:
    """The workers of these controllers, in order."""
    return [worker for name in controllers for worker in CONTROLLERS[name](env)]
