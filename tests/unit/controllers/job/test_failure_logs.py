# SPDX-License-Identifier: Apache-2.0
"""The logs of failed pods for the record: only where allowed, and never in the way of a sync."""

from typing import Any

import pytest

from refloat.api.core import Pod
from refloat.client import errors
from refloat.controllers.job import failure_logs
from refloat.policy.job.attempts import AttemptLogs
from refloat.policy.job.pod_failure import NO_MATCH, Verdict
from refloat.policy.recovery import zombie
from refloat.sim.run import Sim
from tests.fake_server import FollowedClient
from tests.unit.policy import builders
from tests.virtual import virtual

TWENTY = AttemptLogs(20)


class LoggingClient(FollowedClient):
    """Answers with the container and the number of lines; some pods have another answer."""

    def __init__(self, sim: Sim, **answers: Exception | float) -> None:
        super().__init__(sim.clock)
        self._answers = answers
        self.count = 0

    async def log(self, name: str, **options: Any) -> str:
        self.count += 1
        answer = self._answers.get(name.removeprefix("pod-"))
        if isinstance(answer, Exception):
            raise answer
        await self.clock.sleep(answer or 0)
        return f"{options['container']} {options['lines']}\n"


async def read(
    client: LoggingClient, sim: Sim, *pods: Pod, settings: AttemptLogs = TWENTY
) -> dict[str, str]:
    failures = [(pod, NO_MATCH) for pod in pods]
    return dict(await failure_logs.read(client, sim.clock, failures, settings))


@virtual()
async def test_no_log_is_read_unless_an_administrator_allows_it(sim: Sim) -> None:
    client = LoggingClient(sim)
    assert await read(client, sim, builders.failed("a"), settings=AttemptLogs()) == {}
    assert client.count == 0


@virtual()
async def test_the_log_is_that_of_the_container_that_failed(sim: Sim) -> None:
    containers = [builders.container("ok", 0), builders.container("bad", 4)]
    pod = builders.pod("a", "Failed", containers=containers)
    assert await read(LoggingClient(sim), sim, pod) == {"a": "bad 20"}


@virtual()
async def test_the_log_is_that_of_the_container_that_a_rule_matched(sim: Sim) -> None:
    failure = (builders.failed("a"), Verdict("Ignore", 0, "ns/pod-a", "second", 7))
    logs = await failure_logs.read(LoggingClient(sim), sim.clock, [failure], TWENTY)
    assert logs == {"a": "second 20"}


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(errors.Forbidden("no"), id="no right"),
        pytest.param(errors.NotFound("gone"), id="the pod is gone"),
        pytest.param(errors.Unreachable("no"), id="no server"),
        pytest.param(3600.0, id="no answer"),
    ],
)
@virtual()
async def test_a_log_that_cannot_be_read_is_left_out(sim: Sim, answer: Exception | float) -> None:
    client, start = LoggingClient(sim, a=answer), sim.clock.monotonic()
    assert await read(client, sim, builders.failed("a"), builders.failed("b")) == {"b": "main 20"}
    assert sim.clock.monotonic() - start <= failure_logs.SECONDS


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(builders.pod("a", "Failed"), id="that never ran"),
        pytest.param(
            builders.failed("a", conditions=[builders.condition(zombie.CONDITION)]),
            id="on a lost node",
        ),
    ],
)
@virtual()
async def test_a_pod_without_a_log_is_not_asked_for(sim: Sim, pod: Pod) -> None:
    client = LoggingClient(sim)
    assert await read(client, sim, pod) == {}
    assert client.count == 0


@virtual()
async def test_a_sync_reads_a_bounded_number_of_logs(sim: Sim) -> None:
    client = LoggingClient(sim)
    await read(client, sim, *(builders.failed(str(number)) for number in range(100)))
    assert client.count == failure_logs.MAX_LOGS
