# SPDX-License-Identifier: Apache-2.0
"""Each example ends as documented, applied and disturbed with kubectl.

All of them are applied and disturbed first, and checked afterwards: most of a
story is waiting, and they wait together.
"""

import contextlib
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e import cluster
from tests.e2e.cluster import Api, Kubectl, Object

FOLDER = Path(__file__).parents[2] / "examples"
FILES = sorted(FOLDER.glob("*/*.yaml"))

PATIENCE_SECONDS = 300.0

# All of them are played before the first is looked at.
pytestmark = pytest.mark.timeout(400)

INDEX = "batch.kubernetes.io/job-completion-index"
REACHED = ("CompletionsReached", "Reached expected number of succeeded pods")
INTERIM = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}


class Witness:
    """Sees all pods of the cluster, and how many of an index were not over at once."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._running: dict[tuple[str, str], set[str]] = {}
        self.most: Counter[tuple[str, str]] = Counter()
        """By namespace and completion index."""
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        with contextlib.suppress(OSError), self._api.watch("/api/v1/pods") as stream:
            for kind, pod in iter(stream.next, ("", {})):
                self._saw(kind, pod)

    def _saw(self, kind: str, pod: Object) -> None:
        meta = pod["metadata"]
        key = (meta["namespace"], (meta.get("annotations") or {}).get(INDEX, ""))
        running = self._running.setdefault(key, set())
        if kind == "DELETED" or pod["status"].get("phase") in ("Succeeded", "Failed"):
            running.discard(meta["uid"])
        else:
            running.add(meta["uid"])
        self.most[key] = max(self.most[key], len(running))

    def end(self) -> None:
        """Once the server has ended."""
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()


@dataclass
class ExampleJob:
    """One example in a separate namespace."""

    name: str
    kubectl: Kubectl
    api: Api
    witness: Witness

    def most_at_once(self, index: str = "") -> int:
        return self.witness.most[self.kubectl.namespace, index]

    def status(self) -> Object:
        space = self.kubectl.namespace
        job = self.api.get(f"/apis/batch/v1/namespaces/{space}/jobs/{self.name}")
        status: Object = job.get("status") or {}
        return status

    def pods(self) -> list[Object]:
        pods: list[Object] = self.api.get(f"/api/v1/namespaces/{self.kubectl.namespace}/pods")[
            "items"
        ]
        return pods

    def until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"{self.name}: {what}: {self.status()}"
            time.sleep(0.1)

    def counts(self, **want: int) -> None:
        """Wait until the status has all these counts at once."""

        def found() -> bool:
            status = self.status()
            return {name: status.get(name, 0) for name in want} == want

        self.until(found, f"not {want}")

    def running(self, count: int) -> list[Object]:
        """The running pods, once there are so many and the Job counts them."""

        def found() -> list[Object]:
            return [each for each in self.pods() if each["status"]["phase"] == "Running"]

        self.until(
            lambda: len(found()) == count and self.status().get("active") == count,
            f"not {count} running",
        )
        return found()

    def drain(self, pod: Object) -> None:
        """As the story describes; other pods on that node stay."""
        node = pod["spec"]["nodeName"]
        self.kubectl("drain", node, f"--pod-selector=job-name={self.name}", "--timeout=60s")
        self.kubectl("uncordon", node)


def drain_one(story: ExampleJob) -> None:
    (pod,) = story.running(1)
    story.drain(pod)


def delete_index_one(story: ExampleJob) -> None:
    story.running(3)
    selector = f"job-name={story.name},{INDEX}=1"
    story.kubectl("delete", "pod", "--wait=false", "-l", selector)
    story.counts(active=2, terminating=1)


def drain_one_of_four(story: ExampleJob) -> None:
    story.drain(story.running(4)[0])


def suspend_and_resume(story: ExampleJob) -> None:
    story.running(2)
    patch = ("patch", "job", story.name, "--type", "merge", "-p")
    story.kubectl(*patch, '{"spec": {"suspend": true}}')
    story.counts(active=0, terminating=2)
    story.until(lambda: story.status().get("terminating") == 0, "its quota is not free")
    story.kubectl(*patch, '{"spec": {"suspend": false}}')


ACTS: dict[str, Callable[[ExampleJob], None]] = {
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
        api = Api(server.kubeconfig)
        witness = Witness(api)

        def begin(file: Path) -> ExampleJob:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": file.stem}}
            api.create("/api/v1/namespaces", body)
            story = ExampleJob(
                file.stem, Kubectl(server.kubeconfig, folder, file.stem), api, witness
            )
            story.kubectl("apply", "-f", str(file))
            if act := ACTS.get(file.stem):
                act(story)  # at once: the pods run for seconds only
            return story

        with ThreadPoolExecutor() as pool:  # most acts wait
            stories = {story.name: story for story in pool.map(begin, FILES)}
        yield stories
        assert server.end() == 0
    witness.end()


def over(story: ExampleJob, kind: str, want: tuple[str, str], **counts: int) -> None:
    """The Job ends with this condition, these words and these counts."""

    def ended() -> list[Object]:
        conditions: list[Object] = story.status().get("conditions") or []
        return [each for each in conditions if each["type"] in INTERIM and each["status"] == "True"]

    story.until(ended, "is not over")
    reasons = {
        each["type"]: (each["reason"], each["message"]) for each in story.status()["conditions"]
    }
    assert reasons[kind] == reasons[INTERIM[kind]] == want
    status = story.status()
    assert {field: status.get(field, 0) for field in counts} == counts
    story.kubectl("wait", f"--for=condition={kind}", f"job/{story.name}", "--timeout=5s")


def by_rule(story: ExampleJob, container: str, code: int, rule: int) -> tuple[str, str]:
    """The description of the one pod that failed the Job."""
    (pod,) = story.pods()
    name = f"{story.kubectl.namespace}/{pod['metadata']['name']}"
    why = f"failed with exit code {code} matching FailJob rule at index {rule}"
    return "PodFailurePolicy", f"Container {container} for pod {name} {why}"


def test_a_bug_ends_the_job_at_once(stories: dict[str, ExampleJob]) -> None:
    """KEP-3329 story 1; behaviour A15.7"""
    story = stories["story-1-bug"]
    story.until(lambda: story.status().get("failed"), "has not failed")
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
    story.until(lambda: story.status().get("failed"), "has not failed")
    over(story, "Failed", by_rule(story, "main-job-container", 137, 1), failed=1)


def test_an_index_has_one_pod_at_a_time(stories: dict[str, ExampleJob]) -> None:
    """KEP-3939 story 1; behaviour A16.2"""
    story = stories["story-1-one-pod-an-index"]
    over(story, "Complete", REACHED, succeeded=3, failed=1)
    assert story.most_at_once("1") == 1


def test_an_index_has_two_pods_at_once_without_the_policy(stories: dict[str, ExampleJob]) -> None:
    """KEP-3939 story 1; behaviour A16.1"""
    story = stories["story-1-without"]
    over(story, "Complete", REACHED, succeeded=3, failed=1)
    assert story.most_at_once("1") == 2


def test_there_are_never_more_pods_than_asked_for(stories: dict[str, ExampleJob]) -> None:
    """KEP-3939 story 2"""
    story = stories["story-2-never-more-than-asked-for"]
    over(story, "Complete", REACHED, succeeded=4, failed=1)
    assert story.most_at_once() == 4


def test_terminating_pods_are_told_to_whoever_gives_out_quota(
    stories: dict[str, ExampleJob],
) -> None:
    """KEP-3939 story 3; behaviour G8"""
    story = stories["story-3-quota"]
    over(story, "Complete", REACHED, succeeded=2, failed=0)
    assert story.most_at_once() == 2


def test_each_example_is_in_the_index() -> None:
    links = re.findall(r"\]\(([^)]+\.yaml)\)", (FOLDER / "README.md").read_text())
    assert sorted(links) == [str(file.relative_to(FOLDER)) for file in FILES]


def test_each_example_is_looked_at() -> None:
    source = Path(__file__).read_text()
    assert [file.stem for file in FILES if f'stories["{file.stem}"]' not in source] == []
