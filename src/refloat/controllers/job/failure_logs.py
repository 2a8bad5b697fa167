# SPDX-License-Identifier: Apache-2.0
"""The end of the logs of failed pods, for the record of attempts.

Off unless an administrator sets `attemptLogs.lines`, because logs may hold secrets and more users
may read Jobs than logs. A log that cannot be read within the time is left out: no sync fails, and
none waits for longer, because of a log.
"""

import logging
from collections.abc import Mapping, Sequence

from refloat.api.core import Pod
from refloat.base.clock import Clock
from refloat.client import errors
from refloat.client.contract import Client
from refloat.controllers.job import writes
from refloat.policy.job import pod_failure
from refloat.policy.job.attempts import AttemptLogs
from refloat.policy.job.pod_failure import Verdict
from refloat.policy.recovery import zombie

log = logging.getLogger(__name__)

# Of one sync: the record has room for no more logs.
MAX_LOGS = 16

# For all logs of a sync together: a node that does not answer must not hold the Job.
SECONDS = 2.0


async def read(
    client: Client,
    clock: Clock,
    failures: Sequence[tuple[Pod, Verdict]],
    settings: AttemptLogs,
) -> Mapping[str, str]:
    """The logs by the uid of the pod; those that cannot be read are missing."""
    logs: dict[str, str] = {}

    async def read_one(failure: tuple[Pod, Verdict]) -> None:
        pod, verdict = failure
        container, namespace = verdict.container or _container(pod), pod.metadata.namespace
        try:
            text = await client.log(
                pod.metadata.name, namespace=namespace, container=container, lines=settings.lines
            )
        except errors.ClientError as error:
            log.debug("pod %s/%s: its log is not recorded: %s", namespace, pod.metadata.name, error)
            return
        logs[pod.metadata.uid] = text.strip("\n")

    readable = [each for each in failures if _has_log(each[0])][-MAX_LOGS:]
    if not settings.lines or not readable:
        return logs
    try:
        async with clock.timeout(SECONDS):
            await writes.each(readable, read_one, at_once=MAX_LOGS)
    except TimeoutError:
        log.debug("%d logs are not recorded: no answer in %g s", len(readable) - len(logs), SECONDS)
    return logs


def _container(pod: Pod) -> str:
    """The first that failed; else the first."""
    failed = [name for name, _ in pod_failure.failed_containers(pod)]
    return next(iter(failed or [each.name for each in pod.status.container_statuses or ()]), "")


def _has_log(pod: Pod) -> bool:
    """Whether a container ran on a node that may answer."""
    statuses = (*(pod.status.container_statuses or ()), *(pod.status.init_container_statuses or ()))
    ran = any(each.state.terminated or each.state.running for each in statuses)
    return bool(pod.spec.node_name) and ran and not zombie.is_forced(pod)
