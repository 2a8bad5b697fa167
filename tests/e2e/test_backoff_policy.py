# SPDX-License-Identifier: Apache-2.0
"""The stories of KEP-3329's first design, on real processes.

The KEP's Jobs to the letter, with what the KEP leaves out: version, name,
restartPolicy, and the folder in which their programs are.
"""

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
from refloat.scenario.cluster import PODS, whole
from refloat.scenario.namespace import JOB, ScenarioNamespace
from refloat.scenario.nodes import ScenarioNodes
from tests import builders
from tests.cases import cases
from tests.e2e import agents, cluster
from tests.e2e.agents import AgentProcess
from tests.e2e.cluster import PATIENCE_SECONDS, Api, Kubectl, Object, ServerProcess
from tests.e2e.node_cluster import processes, up
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

    ns: ScenarioNamespace
    server: ServerProcess
    place: Path

    async def submit(self, text: str, *, limit: int | None = None, **container: Any) -> None:
        spec = yaml.safe_load(text)["spec"]
        template = spec.pop("template")["spec"]
        if limit is not None:
            spec["backoffLimit"] = limit
        template["volumes"] = [{"name": "story", "hostPath": {"path": str(self.place)}}]
        for each in template["containers"]:
            each["workingDir"] = "/story"
            each["volumeMounts"] = [{"name": "story", "mountPath": "/story"}]
        template["containers"][0] |= container
        await self.ns.submit(template=template, **spec)

    async def run(self, number: int) -> Object:
        """The nth pod, once its program runs."""
        runs = self.place / "runs"
        async with self.ns.patience(f"no run {number}"):
            while len(list(runs.iterdir())) != number:
                await self.ns.sleep(0.05)
        [pod] = await self.ns.runs(1)
        return pod

    async def judged(self, pod: Object) -> tuple[str | None, str | None]:
        """The pod's reason and the action on it, from the Job's annotation."""

        def entry(ns: ScenarioNamespace) -> Any:
            entries = attempts.recorded(ns.jobs[JOB]["metadata"].get("annotations"))
            return next((each for each in entries if each["pod"] == pod["metadata"]["name"]), None)

        await self.ns.wait_until(entry)
        return entry(self.ns).get("reason"), entry(self.ns).get("action")

    def let_go(self) -> None:
        (self.place / "go").touch()

    async def end(self) -> tuple[str, str, int]:
        """The end of the Job, and the number of failures that counted."""
        status = await self.ns.finished()
        end = self.ns.condition("Complete") or self.ns.condition("Failed")
        assert end is not None
        return end["type"], end["reason"], status.get("failed", 0)


Begin = Callable[..., BackoffJob]


@pytest.fixture
def begin(server: ServerProcess, ns: ScenarioNamespace, tmp_path: Path) -> Begin:
    def make(*codes: str, monitoring: str = "0") -> BackoffJob:
        tmp_path.chmod(0o755)
        place = tmp_path / "story"
        (place / "runs").mkdir(parents=True)
        (place / "runs").chmod(0o777)
        (place / "codes").write_text("".join(f"{code}\n" for code in codes))
        (place / "monitoring-code").write_text(monitoring)
        for program, text in (("program", PROGRAM), ("monitoring", MONITORING)):
            (place / program).write_text(text)
            (place / program).chmod(0o755)
        return BackoffJob(ns, server, place)

    return make


async def test_story_1_known_codes_are_retried_and_a_bug_ends_the_job(begin: Begin) -> None:
    story = begin("40", "50", "39")
    await story.submit(backoff_stories.STORY_1)
    assert await story.end() == ("Failed", "BackoffPolicy", 3)
    last = next(each for each in story.ns.pods.values() if exit_code(each) == 39)
    message = (
        f"Container job-container for pod {story.ns.name}/{last['metadata']['name']} failed with "
        "exit code 39 matching Terminate rule at index 0"
    )
    conditions = story.ns.status()["conditions"]
    assert [each["type"] for each in conditions] == ["FailureTarget", "Failed"]
    assert {each["message"] for each in conditions} == {message}


def exit_code(pod: Object) -> int:
    code: int = pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]
    return code


async def test_story_2_a_preempted_pod_is_replaced_and_not_counted(begin: Begin) -> None:
    """The scheduler ends the pod for a more important one."""
    story = begin("wait", "wait")
    nodes = ScenarioNodes(story.ns.cluster)
    cpus = float(nodes.node("n1")["status"]["allocatable"]["cpu"])
    most = {"resources": {"requests": {"cpu": f"{int(cpus * 600)}m"}}}
    await story.submit(backoff_stories.STORY_2, limit=0, **most)
    first = await story.run(1)
    classes = whole("priorityclasses", "scheduling.k8s.io")
    await story.ns.client.create(classes, builders.priority_class("urgent", value=1000))
    urgent = {"name": "main", "image": "i", "command": ["sleep", "1"], **most}
    spec = {"restartPolicy": "Never", "priorityClassName": "urgent", "containers": [urgent]}
    body = builders.pod("urgent", spec=spec)
    await story.ns.client.create(PODS, body, namespace=story.ns.name)
    assert await story.judged(first) == ("Preemption", "Ignore")
    await story.run(2)
    story.let_go()
    assert await story.end() == ("Complete", "CompletionsReached", 0)


@pytest.fixture
def low(server: ServerProcess) -> Iterator[AgentProcess]:
    """A second node."""
    with agents.joined(server, "low", "--accept-all-pods", "--fast", GATE) as agent:
        yield agent
    Api(server.kubeconfig).done("DELETE", "/api/v1/nodes/low")


async def test_story_2_a_pod_that_its_node_evicts_is_replaced_and_not_counted(
    begin: Begin, low: AgentProcess
) -> None:
    """The disk is not filled: the threshold is above the free space."""
    story = begin("wait", "wait")
    nodes = ScenarioNodes(story.ns.cluster)
    await nodes.wait_ready("low")
    await only(nodes, "low", "n1")
    await story.submit(backoff_stories.STORY_2, limit=0)
    first = await story.run(1)
    assert first["spec"]["nodeName"] == "low"
    await only(nodes, "n1", "low")
    low.kill()
    low.command += ["--eviction-hard", "memory.available<100.0%"]
    low.start()
    assert await story.judged(first) == ("NodePressureEviction", "Ignore")
    await story.run(2)
    story.let_go()
    assert await story.end() == ("Complete", "CompletionsReached", 0)


async def only(nodes: ScenarioNodes, name: str, other: str) -> None:
    """Have new pods run on this node."""
    await nodes.patch(name, unschedulable=False)
    await nodes.patch(other, unschedulable=True)


async def test_story_2_a_delete_that_says_why_is_not_counted_and_one_that_does_not_is(
    begin: Begin,
) -> None:
    story = begin("wait", "wait", "wait")
    await story.submit(backoff_stories.STORY_2_ANY)
    first = await story.run(1)
    name = first["metadata"]["name"]
    where = ("--namespace", story.ns.name, "--kubeconfig", story.server.kubeconfig)
    done = cluster.run("delete", "pod", name, "--reason", "Maintenance", *where)
    assert (done.returncode, done.stdout) == (0, f"pod {name} deleted: Maintenance\n")
    assert await story.judged(first) == ("Maintenance", "Ignore")
    second = await story.run(2)
    await story.ns.delete_pod(second)
    assert await story.judged(second) == (None, None)
    await story.run(3)
    story.let_go()
    assert await story.end() == ("Complete", "CompletionsReached", 1)


async def test_the_example_of_the_design_counts_what_is_in_no_range(begin: Begin) -> None:
    story = begin("13", "12")
    await story.submit(backoff_stories.DESIGN)
    assert await story.end() == ("Failed", "BackoffPolicy", 2)


async def test_the_example_of_the_design_looks_at_the_named_container_only(begin: Begin) -> None:
    story = begin("0", monitoring="12")
    await story.submit(backoff_stories.DESIGN, limit=0)
    assert await story.end() == ("Failed", "BackoffLimitExceeded", 1)


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
