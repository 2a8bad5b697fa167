# SPDX-License-Identifier: Apache-2.0
"""Pods that fail, when they are replaced, and when that ends."""

import itertools
from datetime import datetime

from refloat.api.meta import Object
from refloat.scenario.namespace import ScenarioNamespace
from tests.scenarios.scenario import (
    BACKOFF_LIMIT,
    FOREVER,
    REACHED,
    ends,
    has,
    in_turn,
    over,
    scenario,
)

# Times on the wire are in whole seconds, and a controller may be a little late.
LATE_SECONDS = 9.0


def waits(ns: ScenarioNamespace) -> list[float]:
    """The seconds from each pod's end to the next one's creation."""
    pods = list(ns.pods.values())
    return [
        (_time(later["metadata"]["creationTimestamp"]) - _end(earlier)).total_seconds()
        for earlier, later in itertools.pairwise(pods)
    ]


def _end(pod: Object) -> datetime:
    (container,) = pod["status"]["containerStatuses"]
    return _time(container["state"]["terminated"]["finishedAt"])


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


@scenario
async def a_failed_pod_is_replaced_after_ten_seconds(ns: ScenarioNamespace) -> None:
    """behaviour A11.4, G1"""
    await ns.submit(simulate={"main": in_turn(1, 0)})
    await ns.wait_until(lambda state: state.status().get("failed") == 1)
    has(ns.status(), active=0, succeeded=0)
    await over(ns, "Complete", REACHED, succeeded=1, failed=1)
    (wait,) = waits(ns)
    assert 10 <= wait < 10 + LATE_SECONDS


@scenario
async def the_second_failure_in_a_row_doubles_the_wait(ns: ScenarioNamespace) -> None:
    """behaviour A11.4"""
    await ns.submit(simulate={"main": in_turn(1, 1, 0)})
    await over(ns, "Complete", REACHED, succeeded=1, failed=2)
    first, second = waits(ns)
    assert 10 <= first < 10 + LATE_SECONDS
    assert 20 <= second < 20 + LATE_SECONDS


@scenario
async def a_success_ends_the_back_off(ns: ScenarioNamespace) -> None:
    """behaviour A11.2"""
    await ns.submit(completions=2, simulate={"main": in_turn(1, 0, 0)})
    await over(ns, "Complete", REACHED, succeeded=2, failed=1)
    _, wait = waits(ns)
    assert wait < LATE_SECONDS


@scenario
async def a_limit_of_zero_allows_no_failure(ns: ScenarioNamespace) -> None:
    """behaviour A12.1, A12.3"""
    await ns.submit(backoffLimit=0, simulate={"main": ends(1)})
    await over(ns, "Failed", BACKOFF_LIMIT, failed=1, succeeded=0, active=0)
    assert len(ns.pods) == 1
    assert "completionTime" not in ns.status()


@scenario
async def a_limit_of_one_allows_one_failure(ns: ScenarioNamespace) -> None:
    """behaviour A12.1"""
    await ns.submit(backoffLimit=1, simulate={"main": ends(1)})
    await over(ns, "Failed", BACKOFF_LIMIT, failed=2)
    assert len(ns.pods) == 2


@scenario
async def a_job_that_fails_ends_its_other_pods_and_counts_them_as_failed(
    ns: ScenarioNamespace,
) -> None:
    """behaviour A4.12, A5.3"""
    await ns.submit(
        completions=3,
        parallelism=3,
        backoffLimit=0,
        simulate={"main": [ends(1, seconds=3), FOREVER]},
    )
    await over(ns, "Failed", BACKOFF_LIMIT, failed=3, active=0, terminating=0)
    assert len(ns.pods) == 3


@scenario
async def what_succeeded_before_the_limit_was_reached_stays_counted(
    ns: ScenarioNamespace,
) -> None:
    """behaviour A5.3, A12.1"""
    await ns.submit(
        completions=2,
        parallelism=2,
        backoffLimit=0,
        simulate={"main": [ends(), ends(1, seconds=4)]},
    )
    await over(ns, "Failed", BACKOFF_LIMIT, failed=1, succeeded=1)


@scenario
async def a_container_is_restarted_in_its_pod(ns: ScenarioNamespace) -> None:
    """behaviour A12.2, D2.1"""
    await ns.submit(template={"restartPolicy": "OnFailure"}, simulate={"main": in_turn(1, 0)})
    await over(ns, "Complete", REACHED, succeeded=1, failed=0)
    (pod,) = ns.pods.values()
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 1


@scenario
async def one_restart_is_too_much_for_a_limit_of_zero(ns: ScenarioNamespace) -> None:
    """behaviour A12.2"""
    await ns.submit(
        template={"restartPolicy": "OnFailure"},
        backoffLimit=0,
        simulate={"main": [ends(1), FOREVER]},
    )
    await over(ns, "Failed", BACKOFF_LIMIT, failed=1)
    assert len(ns.pods) == 1


@scenario
async def as_many_restarts_as_the_limit_are_too_many(ns: ScenarioNamespace) -> None:
    """behaviour A12.2: not above the limit but at the limit"""
    await ns.submit(
        template={"restartPolicy": "OnFailure"},
        backoffLimit=1,
        simulate={"main": [ends(1), FOREVER]},
    )
    await over(ns, "Failed", BACKOFF_LIMIT, failed=1)


@scenario
async def fewer_restarts_than_the_limit_are_borne(ns: ScenarioNamespace) -> None:
    """behaviour A12.2"""
    await ns.submit(
        template={"restartPolicy": "OnFailure"},
        backoffLimit=2,
        simulate={"main": [ends(1), FOREVER]},
    )
    await ns.wait_until(
        lambda state: any(
            each["restartCount"] == 1
            for pod in state.running
            for each in pod["status"].get("containerStatuses") or ()
        )
    )
    await ns.quiet()
    has(ns.status(), active=1, failed=0)


@scenario
async def restarts_of_init_containers_count_too(ns: ScenarioNamespace) -> None:
    """behaviour A12.2"""
    await ns.submit(
        template={
            "restartPolicy": "OnFailure",
            "initContainers": [{"name": "init", "image": "busybox:1"}],
        },
        backoffLimit=0,
        simulate={"init": [ends(1), ends()], "main": FOREVER},
    )
    await over(ns, "Failed", BACKOFF_LIMIT, failed=1)


@scenario
async def a_failed_init_container_fails_the_pod(ns: ScenarioNamespace) -> None:
    """behaviour D2.2"""
    await ns.submit(
        template={"initContainers": [{"name": "init", "image": "busybox:1"}]},
        backoffLimit=0,
        simulate={"init": ends(3)},
    )
    await over(ns, "Failed", BACKOFF_LIMIT, failed=1)


@scenario
async def a_sidecar_keeps_no_pod_from_its_end(ns: ScenarioNamespace) -> None:
    """behaviour D2.11, D2.12: its exit code does not matter"""
    sidecar = {"name": "side", "image": "busybox:1", "restartPolicy": "Always"}
    await ns.submit(
        template={"initContainers": [sidecar]},
        simulate={"side": {**FOREVER, "stopExitCode": 9}, "main": ends(seconds=2)},
    )
    await over(ns, "Complete", REACHED, succeeded=1, failed=0)


@scenario
async def a_limit_that_was_raised_in_time_lets_the_job_go_on(ns: ScenarioNamespace) -> None:
    """behaviour B4.4"""
    await ns.submit(backoffLimit=1, simulate={"main": in_turn(1, 1, 0)})
    await ns.wait_until(lambda state: state.status().get("failed") == 1)
    await ns.change(backoffLimit=5)
    await over(ns, "Complete", REACHED, succeeded=1, failed=2)
