# SPDX-License-Identifier: Apache-2.0
"""Each example ends as documented, applied and disturbed with kubectl.

All of them are applied and disturbed first, and checked afterwards: most of a
story is waiting, and they wait together.
"""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from refloat.base.clock import RealClock
from refloat.base.rand import Rand
from refloat.scenario.cluster import NAMESPACES, connected
from refloat.scenario.errors import ConditionTimeout
from refloat.scenario.namespace import INDEX, ScenarioNamespace
from tests.e2e import cluster
from tests.e2e.cluster import Kubectl

FOLDER = Path(__file__).parents[2] / "examples"
FILES = sorted(FOLDER.glob("*/*.yaml"))

# All of them are played before the first is looked at.
pytestmark = pytest.mark.timeout(400)

REACHED = ("CompletionsReached", "Reached expected number of succeeded pods")
INTERIM = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}


@dataclass(frozen=True)
class ExampleJob:
    """One example in a separate namespace."""

    name: str
    kubectl: Kubectl
    ns: ScenarioNamespace

    async def play(self) -> None:
        """Apply the example and disturb the Job; returns when the Job is over."""
        await self.ns.client.create(NAMESPACES, {"metadata": {"name": self.name}})
        await self.run("apply", "-f", str(next(each for each in FILES if each.stem == self.name)))
        if act := ACTS.get(self.name):
            await act(self)  # at once: the pods run for seconds only
        with contextlib.suppress(ConditionTimeout):  # the example's own test fails
            await self.ns.finished(self.name)

    async def run(self, *command: str) -> None:
        await asyncio.to_thread(self.kubectl, *command)

    async def counts(self, **want: int) -> None:
        """Wait until the status has all these counts at once."""
        await self.ns.wait_until(
            lambda ns: {field: ns.status(self.name).get(field, 0) for field in want} == want,
            f"not {want}",
        )

    async def drain(self, pods: int) -> None:
        """Drain the node of the first of so many pods; other pods on that node stay."""
        pod, *_ = await self.ns.runs(pods, self.name)
        node = pod["spec"]["nodeName"]
        await self.run("drain", node, f"--pod-selector=job-name={self.name}", "--timeout=60s")
        await self.run("uncordon", node)


async def drain_one(story: ExampleJob) -> None:
    await story.drain(1)


async def delete_index_one(story: ExampleJob) -> None:
    await story.ns.runs(3, story.name)
    selector = f"job-name={story.name},{INDEX}=1"
    await story.run("delete", "pod", "--wait=false", "-l", selector)
    await story.counts(active=2, terminating=1)


async def drain_one_of_four(story: ExampleJob) -> None:
    await story.drain(4)


async def suspend_and_resume(story: ExampleJob) -> None:
    await story.ns.runs(2, story.name)
    patch = ("patch", "job", story.name, "--type", "merge", "-p")
    await story.run(*patch, '{"spec": {"suspend": true}}')
    await story.counts(active=0, terminating=2)
    await story.counts(terminating=0)
    await story.run(*patch, '{"spec": {"suspend": false}}')


ACTS: dict[str, Callable[[ExampleJob], Awaitable[None]]] = {
    "story-2-disruption": drain_one,
    "story-3-disruption": drain_one,
    "story-1-one-pod-an-index": delete_index_one,
    "story-1-without": delete_index_one,
    "story-2-never-more-than-asked-for": drain_one_of_four,
    "story-3-quota": suspend_and_resume,
}


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ExampleJob]]:
    folder = tmp_path_factory.mktemp("examples")
    with cluster.serving(folder / "data", "--simulated-nodes", "20") as server:
        yield asyncio.run(play_all(server.kubeconfig, folder))
        assert server.end() == 0


async def play_all(kubeconfig: Path, home: Path) -> dict[str, ExampleJob]:
    async with connected(kubeconfig, RealClock(), Rand()) as on, asyncio.TaskGroup() as group:
        stories = {
            name: ExampleJob(name, Kubectl(kubeconfig, home, name), ScenarioNamespace(on, name))
            for name in (file.stem for file in FILES)
        }
        for story in stories.values():
            group.create_task(story.play())
    return stories


def over(story: ExampleJob, kind: str, want: tuple[str, str], **counts: int) -> None:
    """The Job has ended with this condition, these words and these counts."""
    for each in (kind, INTERIM[kind]):
        condition = story.ns.condition(each, story.name)
        assert condition is not None, story.ns.summary()
        assert (condition["reason"], condition["message"]) == want
    status = story.ns.status(story.name)
    assert {field: status.get(field, 0) for field in counts} == counts
    story.kubectl("wait", f"--for=condition={kind}", f"job/{story.name}", "--timeout=5s")


def by_rule(story: ExampleJob, container: str, code: int, rule: int) -> tuple[str, str]:
    """The description of the one pod that failed the Job."""
    (pod,) = story.ns.present
    name = f"{story.name}/{pod['metadata']['name']}"
    why = f"failed with exit code {code} matching FailJob rule at index {rule}"
    return "PodFailurePolicy", f"Container {container} for pod {name} {why}"


def test_a_bug_ends_the_job_at_once(stories: dict[str, ExampleJob]) -> None:
    """KEP-3329 story 1; behaviour A15.7"""
    story = stories["story-1-bug"]
    over(story, "Failed", by_rule(story, "job-container", 1, 0), failed=1, succeeded=0)


def test_a_failure_that_asks_for_it_is_retried(stories: dict[str, ExampleJob]) -> None:
    """KEP-3329 story 1"""
    over(stories["story-1-retry"], "Complete", REACHED, succeeded=1, failed=1)


def test_a_drain_is_not_counted(stories: dict[str, ExampleJob]) -> None:
    """KEP-3329 story 2; behaviour G3"""
    over(stories["story-2-disruption"], "Complete", REACHED, succeeded=1, failed=0)


def test_errors_of_the_user_are_counted(stories: dict[str, ExampleJob]) -> None:
    """KEP-3329 story 2; behaviour A12.3"""
    want = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
    over(stories["story-2-user-error"], "Failed", want, failed=4)


def test_a_drain_is_counted_where_the_policy_says_so(stories: dict[str, ExampleJob]) -> None:
    """KEP-3329 story 3"""
    over(stories["story-3-disruption"], "Complete", REACHED, succeeded=1, failed=1)


def test_a_program_beyond_its_limits_ends_the_job(stories: dict[str, ExampleJob]) -> None:
    """KEP-3329 story 3; behaviour A15.7, D5.4"""
    story = stories["story-3-limits"]
    over(story, "Failed", by_rule(story, "main-job-container", 137, 1), failed=1)


def test_an_index_has_one_pod_at_a_time(stories: dict[str, ExampleJob]) -> None:
    """KEP-3939 story 1; behaviour A16.2"""
    story = stories["story-1-one-pod-an-index"]
    over(story, "Complete", REACHED, succeeded=3, failed=1)
    assert story.ns.most_at_once(1) == 1


def test_an_index_has_two_pods_at_once_without_the_policy(stories: dict[str, ExampleJob]) -> None:
    """KEP-3939 story 1; behaviour A16.1"""
    story = stories["story-1-without"]
    over(story, "Complete", REACHED, succeeded=3, failed=1)
    assert story.ns.most_at_once(1) == 2


def test_there_are_never_more_pods_than_asked_for(stories: dict[str, ExampleJob]) -> None:
    """KEP-3939 story 2"""
    story = stories["story-2-never-more-than-asked-for"]
    over(story, "Complete", REACHED, succeeded=4, failed=1)
    assert story.ns.most_at_once() == 4


def test_terminating_pods_are_told_to_whoever_gives_out_quota(
    stories: dict[str, ExampleJob],
) -> None:
    """KEP-3939 story 3; behaviour G8"""
    story = stories["story-3-quota"]
    over(story, "Complete", REACHED, succeeded=2, failed=0)
    assert story.ns.most_at_once() == 2


def test_each_example_is_in_the_index() -> None:
    links = re.findall(r"\]\(([^)]+\.yaml)\)", (FOLDER / "README.md").read_text())
    assert sorted(links) == [str(file.relative_to(FOLDER)) for file in FILES]


def test_each_example_is_looked_at() -> None:
    source = Path(__file__).read_text()
    assert [file.stem for file in FILES if f'stories["{file.stem}"]' not in source] == []
