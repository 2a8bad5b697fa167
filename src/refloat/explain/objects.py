# SPDX-License-Identifier: Apache-2.0
"""The fields of objects that explain reads and no controller does.

Each struct adds to the one that the controllers share, so every pure decision of `policy`
takes these objects too. Controllers keep thousands of objects in memory; explain a few.
"""

from refloat.api import core, kinds
from refloat.api.structs import ApiObject, Partial, Time
from refloat.client.contract import Kind


class Waiting(core.Waiting, frozen=True):
    message: str = ""


class Terminated(core.Terminated, frozen=True):
    message: str = ""


class ContainerState(Partial, frozen=True):
    waiting: Waiting | None = None
    running: core.Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Partial, frozen=True):
    name: str = ""
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    ready: bool = False
    restart_count: int = 0
    image: str = ""


class PodStatus(core.PodStatus, frozen=True):
    container_statuses: tuple[ContainerStatus, ...] | None = None  # type: ignore[assignment]
    init_container_statuses: tuple[ContainerStatus, ...] | None = None  # type: ignore[assignment]


class DetailedPod(core.Pod, frozen=True):
    status: PodStatus = PodStatus()


class CronJobSpec(Partial, frozen=True):
    schedule: str = ""
    time_zone: str | None = None
    suspend: bool | None = None
    concurrency_policy: str = ""
    starting_deadline_seconds: int | None = None


class ObjectName(Partial, frozen=True):
    name: str = ""


class CronJobStatus(Partial, frozen=True):
    active: tuple[ObjectName, ...] | None = None
    last_schedule_time: Time | None = None
    last_successful_time: Time | None = None


class CronJob(ApiObject, frozen=True):
    spec: CronJobSpec = CronJobSpec()
    status: CronJobStatus = CronJobStatus()


PODS = Kind(kinds.of("pods"), DetailedPod)
CRON_JOBS = Kind(kinds.Resource("batch", "v1", "cronjobs", "CronJob", namespaced=True), CronJob)
