# SPDX-License-Identifier: Apache-2.0
"""The stories of KEP-3329's first design, on real processes.

The KEP's Jobs to the letter, with what the KEP leaves out: version, name,
restartPolicy, and the folder in which their programs are.
"""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from refloat.policy.job import attempts
from tests.cases import cases
from tests.e2e import agents, cluster
from tests.e2e.cluster import PATIENCE_SECONDS, Api, Kubectl, Object, ServerProcess
from tests.e2e.node_cluster import NODES, PODS, is_ready, processes, until, up
from tests.e2e.test_jobs import JOBS, ended, pods
from tests.unit.policy.job import backoff_stories

GATE = "--feature-gates=RetriableAndNonRetriableFailures=true"

# The nth run ends with the nth code, or waits for SIGTERM and succeeds.
PROGRAM = """#!/bin/sh
n=$(ls runs | wc -l)
code=$(sed -n "$((n + 1))p" codes)
: > runs/$n
[ "$code" = wait ] || exit $code
while [ ! -e go ]; do sleep 0.1; done
"""
MONITORING = "#!/bin/sh\nexit $(cat monitoring-code)\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("stories") / "data"
    try:
        with up(folder, 1, "--fast", GATE) as server:
            yield server
            assert server.end() == 0
    finally:
        for pid in processes(folder):
            os.kill(pid, signal.SIGKILL)


@dataclass(frozen=True)
class BackoffJob:
    """A Job of the KEP, and the folder that the containers run in."""

    name: str
    api: Api
    server: ServerProcess
    place: Path

    def submit(self, text: str, *, limit: int | None = None, **container: Any) -> None:
        job = yaml.safe_load(text)
        job |= {"apiVersion": "batch/v1", "metadata": {"name": self.name}}
        if limit is not None:
            job["spec"]["backoffLimit"] = limit
        spec = job["spec"]["template"]["spec"]
        spec["restartPolicy"] = "Never"
        spec["volumes"] = [{"name": "story", "hostPath": {"path": str(self.place)}}]
        for each in spec["containers"]:
            each["workingDir"] = "/story"
            each["volumeMounts"] = [{"name": "story", "mountPath": "/story"}]
        spec["containers"][0] |= container
        self.api.create(JOBS, job)

    def run(self, number: int) -> Object:
        """The nth pod, once that pod runs."""
        runs = self.place / "runs"
        until(self.api, f"{JOBS}/{self.name}", lambda _: len(list(runs.iterdir())) == number)
        [pod] = [each for each in pods(self.api, self.name) if not is_over(each)]
        return pod

    def judged(self, pod: Object) -> tuple[str | None, str | None]:
        """The pod's reason and the action on it, from the Job's annotation."""
        name = pod["metadata"]["name"]

        def entry(job: Object) -> Object | None:
            entries = json.loads(
                job["metadata"].get("annotations", {}).get(attempts.ANNOTATION, "[]")
            )
            return next((each for each in entries if each["pod"] == name), None)

        attempt = entry(until(self.api, f"{JOBS}/{self.name}", entry))
        assert attempt is not None
        return attempt.get("reason"), attempt.get("action")

    def let_go(self) -> None:
        (self.place / "go").touch()

    def end(self) -> tuple[str, str, int]:
        """The end of the Job, and the number of failures that counted."""
        end = ended(self.api, self.name)
        return end["type"], end["reason"], end["job"].get("failed", 0)


def is_over(pod: Object) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


Begin = Callable[..., BackoffJob]


@pytest.fixture
def begin(server: ServerProcess, tmp_path: Path) -> Begin:
    def make(name: str, *codes: str, monitoring: str = "0") -> BackoffJob:
        tmp_path.chmod(0o755)
        place = tmp_path / name
        (place / "runs").mkdir(parents=True)
        (place / "runs").chmod(0o777)
        (place / "codes").write_text("".join(f"{code}\n" for code in codes))
        (place / "monitoring-code").write_text(monitoring)
        for program, text in (("program", PROGRAM), ("monitoring", MONITORING)):
            (place / program).write_text(text)
            (place / program).chmod(0o755)
        return BackoffJob(name, Api(server.kubeconfig), server, place)

    return make


def test_story_1_known_codes_are_retried_and_a_bug_ends_the_job(begin: Begin) -> None:
    story = begin("story-1", "40", "50", "39")
    story.submit(backoff_stories.STORY_1)
    end = ended(story.api, story.name)
    last = next(each for each in pods(story.api, story.name) if exit_code(each) == 39)
    assert (end["type"], end["reason"]) == ("Failed", "BackoffPolicy")
    assert end["message"] == (
        f"Container job-container for pod default/{last['metadata']['name']} failed with "
        "exit code 39 matching Terminate rule at index 0"
    )
    assert end["job"]["failed"] == 3
    first = end["job"]["conditions"][0]
    assert (first["type"], first["message"]) == ("FailureTarget", end["message"])


def exit_code(pod: Object) -> int:
    code: int = pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]
    return code


def test_story_2_a_preempted_pod_is_replaced_and_not_counted(begin: Begin) -> None:
    """The scheduler ends the pod for a more important one."""
    story = begin("story-2", "wait", "wait")
    most = {"resources": {"requests": {"cpu": cpus(story.api, 0.6)}}}
    story.submit(backoff_stories.STORY_2, limit=0, **most)
    first = story.run(1)
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    story.api.create(classes, {"metadata": {"name": "urgent"}, "value": 1000})
    urgent = {"name": "main", "image": "i", "command": ["sleep", "1"], **most}
    spec = {"restartPolicy": "Never", "priorityClassName": "urgent", "containers": [urgent]}
    story.api.create(PODS, {"metadata": {"name": "urgent"}, "spec": spec})
    assert story.judged(first) == ("Preemption", "Ignore")
    story.run(2)
    story.let_go()
    assert story.end() == ("Complete", "CompletionsReached", 0)


def cpus(api: Api, part: float) -> str:
    """So much of what the node has."""
    have = api.get("/api/v1/nodes/n1")["status"]["allocatable"]["cpu"]
    return f"{int(float(have) * part * 1000)}m"


def test_story_2_a_pod_that_its_node_evicts_is_replaced_and_not_counted(begin: Begin) -> None:
    """The disk is not filled: the threshold is above the free space."""
    story = begin("story-2-low", "wait", "wait")
    with agents.joined(story.server, "low", "--accept-all-pods", "--fast", GATE) as agent:
        until(story.api, f"{NODES}/low", is_ready)
        only(story.api, "low", "n1")
        story.submit(backoff_stories.STORY_2, limit=0)
        first = story.run(1)
        assert first["spec"]["nodeName"] == "low"
        only(story.api, "n1", "low")
        agent.kill()
        agent.command += ["--eviction-hard", "memory.available<100.0%"]
        agent.start()
        assert story.judged(first) == ("NodePressureEviction", "Ignore")
        story.run(2)
        story.let_go()
        assert story.end() == ("Complete", "CompletionsReached", 0)
    story.api.done("DELETE", f"{NODES}/low")


def only(api: Api, name: str, other: str) -> None:
    """Have new pods run on this node."""
    for node, closed in ((name, False), (other, True)):
        api.patch(f"{NODES}/{node}", {"spec": {"unschedulable": closed}})


def test_story_2_a_delete_that_says_why_is_not_counted_and_one_that_does_not_is(
    begin: Begin,
) -> None:
    story = begin("story-2-any", "wait", "wait", "wait")
    story.submit(backoff_stories.STORY_2_ANY)
    first = story.run(1)
    name = first["metadata"]["name"]
    where = ("--kubeconfig", story.server.kubeconfig)
    done = cluster.run("delete", "pod", name, "--reason", "Maintenance", *where)
    assert (done.returncode, done.stdout) == (0, f"pod {name} deleted: Maintenance\n")
    assert story.judged(first) == ("Maintenance", "Ignore")
    second = story.run(2)
    story.api.done("DELETE", f"{PODS}/{second['metadata']['name']}")
    assert story.judged(second) == (None, None)
    story.run(3)
    story.let_go()
    assert story.end() == ("Complete", "CompletionsReached", 1)


def test_the_example_of_the_design_counts_what_is_in_no_range(begin: Begin) -> None:
    story = begin("design", "13", "12")
    story.submit(backoff_stories.DESIGN)
    assert story.end() == ("Failed", "BackoffPolicy", 2)


def test_the_example_of_the_design_looks_at_the_named_container_only(begin: Begin) -> None:
    story = begin("monitored", "0", monitoring="12")
    story.submit(backoff_stories.DESIGN, limit=0)
    assert story.end() == ("Failed", "BackoffLimitExceeded", 1)


def test_kubectl_explains_and_takes_it(server: ServerProcess, tmp_path: Path) -> None:
    kubectl = Kubectl(server.kubeconfig, tmp_path)
    output = kubectl("explain", "job.spec.backoffPolicy.rules")
    for field in ("containerExitCodeIn\t<string>", "podStatusReasonNotIn\t<[]string>"):
        assert field in output
    job = yaml.safe_load(backoff_stories.STORY_2)
    job |= {"apiVersion": "batch/v1", "metadata": {"name": "taken"}}
    job["spec"] |= {"suspend": True}
    job["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    kubectl("create", "-f", "-", stdin=job)
    spec = kubectl.object("get", "job", "taken")["spec"]
    assert spec["backoffPolicy"] == job["spec"]["backoffPolicy"]
    assert spec["podReplacementPolicy"] == "Failed"
    job["spec"]["backoffPolicy"]["rules"][0]["containerName"] = "x"
    job["metadata"]["name"] = "wrong"
    assert "spec.backoffPolicy.rules[0].containerName" in kubectl.refused(
        "create", "-f", "-", stdin=job
    )


def test_without_the_gate_kubectl_takes_it_for_unknown(tmp_path: Path) -> None:
    with cluster.serving(tmp_path / "data") as server:
        kubectl = Kubectl(server.kubeconfig, tmp_path)
        path = "job.spec.backoffPolicy"
        assert 'field "backoffPolicy" does not exist' in kubectl.refused("explain", path)
        job = yaml.safe_load(backoff_stories.STORY_1)
        job |= {"apiVersion": "batch/v1", "metadata": {"name": "j"}}
        job["spec"]["template"]["spec"]["restartPolicy"] = "Never"
        error = kubectl.refused("create", "-f", "-", stdin=job)
        assert 'strict decoding error: unknown field "spec.backoffPolicy"' in error


def test_the_demo_plays_both_stories_within_80_columns() -> None:
    done = subprocess.run(
        [cluster.REFLOAT, "demo", "ranges-and-reasons", "--pace", "0"],
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    for text in ("exit code 39: Terminate by rule 0", "reason Maintenance: Ignore by rule 0"):
        assert text in done.stdout
    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []


@cases(
    "argv want_code want",
    {
        "no word": (["p", "--reason", "two words"], 2, "is no reason"),
        "no reason": (["p"], 2, "Missing option '--reason'"),
        "no pod": (["nobody", "--reason", "X"], 1, 'pods "nobody" not found'),
    },
)
def test_a_delete_that_is_refused_says_why(
    server: ServerProcess, argv: list[str], want_code: int, want: str
) -> None:
    done = cluster.run("delete", "pod", *argv, "--kubeconfig", server.kubeconfig)
    assert (done.returncode, done.stdout) == (want_code, "")
    assert want in done.stderr
