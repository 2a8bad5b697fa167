# SPDX-License-Identifier: Apache-2.0
"""Jobs on `refloat up --simulated-nodes`, as a user runs them."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import builders
from tests.e2e.cluster import PATIENCE_SECONDS, Api, Object, serving

JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with serving(tmp_path_factory.mktemp("jobs") / "data", "--simulated-nodes", "3") as server:
        yield Api(server.kubeconfig)
        assert server.end() == 0


def ended(api: Api, name: str) -> Object:
    """The Job's last condition, once the Job is complete or failed."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        status = api.get(f"{JOBS}/{name}")["status"]
        for condition in status.get("conditions") or ():
            if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
                return {**condition, "job": status}
        assert time.monotonic() < deadline, status
        time.sleep(0.05)


def pods(api: Api, name: str) -> list[Object]:
    items: list[Object] = api.get(f"{PODS}?labelSelector=job-name={name}")["items"]
    return items


def test_an_indexed_job_completes_on_simulated_nodes(api: Api) -> None:
    api.create(
        JOBS,
        builders.job(
            "work", spec={"completions": 4, "parallelism": 2, "completionMode": "Indexed"}
        ),
    )
    end = ended(api, "work")
    assert (end["type"], end["reason"]) == ("Complete", "CompletionsReached")
    assert end["message"] == "Reached expected number of succeeded pods"
    assert end["job"]["succeeded"] == 4
    assert end["job"]["completedIndexes"] == "0-3"
    assert end["job"]["uncountedTerminatedPods"] == {}
    items = pods(api, "work")
    assert len(items) == 4
    assert {each["status"]["phase"] for each in items} == {"Succeeded"}
    assert {each["spec"]["nodeName"] for each in items} <= {"node-0", "node-1", "node-2"}
    assert not any(each["metadata"].get("finalizers") for each in items)


def test_a_failure_that_the_policy_calls_a_bug_fails_the_job_at_once(api: Api) -> None:
    """behaviour A15.7"""
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    simulate = '{"main": [{"seconds": 0.1, "exitCode": 42}]}'
    api.create(
        JOBS, builders.job("bug", simulate=simulate, spec={"podFailurePolicy": {"rules": [rule]}})
    )
    end = ended(api, "bug")
    (pod,) = pods(api, "bug")
    assert (end["type"], end["reason"]) == ("Failed", "PodFailurePolicy")
    assert end["message"] == (
        f"Container main for pod default/{pod['metadata']['name']} failed with exit code 42 "
        "matching FailJob rule at index 0"
    )
    assert end["job"]["failed"] == 1


def test_failures_beyond_the_limit_fail_the_job(api: Api) -> None:
    """behaviour A12.1, A12.3"""
    simulate = '{"main": [{"seconds": 0.1, "exitCode": 1}]}'
    api.create(JOBS, builders.job("limit", simulate=simulate, spec={"backoffLimit": 0}))
    end = ended(api, "limit")
    assert (end["type"], end["reason"]) == ("Failed", "BackoffLimitExceeded")
    assert end["message"] == "Job has reached the specified backoff limit"


def test_a_job_outlives_its_server(tmp_path: Path) -> None:
    """What a killed process has begun, the next one ends; nothing is counted twice."""
    data_dir = tmp_path / "data"
    simulate = '{"main": [{"seconds": 1}]}'
    with serving(data_dir, "--simulated-nodes", "2", "--fast") as server:
        api = Api(server.kubeconfig)
        api.create(
            JOBS, builders.job("long", simulate=simulate, spec={"completions": 4, "parallelism": 2})
        )
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not api.get(f"{JOBS}/long")["status"].get("active"):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    with serving(data_dir, "--simulated-nodes", "2", "--fast") as server:
        end = ended(Api(server.kubeconfig), "long")
        assert end["type"] == "Complete"
        assert end["job"]["succeeded"] == 4


def test_a_job_goes_when_its_time_after_its_end_is_over(api: Api) -> None:
    """Behaviour A24. The Job may wait for the garbage collector to delete the pods."""
    api.create(JOBS, builders.job("brief", spec={"ttlSecondsAfterFinished": 1}))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        answer = api.ask("GET", f"{JOBS}/brief")
        if answer.status == 404 or "deletionTimestamp" in answer.object["metadata"]:
            return
        assert time.monotonic() < deadline, answer.object
        time.sleep(0.05)
