# SPDX-License-Identifier: Apache-2.0
"""One scenario's Jobs on a cluster: submitted, disturbed, finished, and judged."""

import contextlib
from collections.abc import Iterator
from typing import Any

from tests.e2e.cluster import Object
from tests.faults import audit, checks, containers
from tests.faults.containers import ContainerRun
from tests.faults.observed import PODS, Observer
from tests.faults.processes import OURS, FaultCluster, wait

JOBS = "/apis/batch/v1/namespaces/default/jobs"
EVENTS = "/api/v1/namespaces/default/events"

# Events are written behind what they report: the longest that one may be late.
EVENTS_SECONDS = 60.0


class Workload:
    """Jobs of one scenario, whose names begin with the scenario's."""

    def __init__(self, cluster: FaultCluster, name: str) -> None:
        self.cluster = cluster
        self.observer = Observer(cluster.api)
        self._name = name.replace("_", "-")
        self.names: list[str] = []
        self.deleted: set[str] = set()
        self.every_event = True
        for each in cluster.keepers.values():
            each.kills = 0

    def submit(self, name: str, **how: Any) -> str:
        """Create a Job; the containers run until `release`, or for `life` beats."""
        name = f"{self._name}-{name}"
        managed_by = OURS if self.cluster.manager else ""
        job = containers.job(name, self.cluster.shown, managed_by=managed_by, **how)
        self._create(job)
        self.names.append(name)
        return name

    def _create(self, job: Object) -> None:
        """Also while the server is away: a user tries again."""

        def done() -> bool:
            with contextlib.suppress(OSError):
                return self.cluster.api.ask("POST", JOBS, job).status in (201, 409)
            return False

        wait(done, f"{job['metadata']['name']} is created")

    def submit_safe(self, name: str, *, is_deleted: bool = False, **how: Any) -> str:
        """Create a Job whose pods may be ended by force; is_deleted: and their objects, too."""
        toleration = {
            "key": "node.kubernetes.io/unreachable",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 1,
        }
        pod = {"tolerations": [toleration], "terminationGracePeriodSeconds": 1}
        metadata: Object = {"annotations": {audit.ANNOTATION: "true"}}
        if is_deleted:
            metadata = {"labels": {audit.LABEL: "1s"}}
        return self.submit(name, pod=pod, metadata=metadata, **how)

    def forced(self) -> list[Object]:
        """Pods that were ended by force."""
        return [each for each in list(self.observer.pods.values()) if audit.is_forced(each)]

    def evicted(self) -> list[Object]:
        """Pods that force eviction made Failed."""
        return [each for each in list(self.observer.pods.values()) if audit.is_evicted(each)]

    def runs(self, *names: str) -> list[ContainerRun]:
        """The containers of these Jobs, or of all."""
        jobs = set(names or self.names)
        runs = containers.read(self.cluster.shown).values()
        return [each for each in runs if each.job in jobs]

    def running(self, count: int, *names: str) -> list[ContainerRun]:
        """The containers, once so many of them run."""
        wait(
            lambda: len([each for each in self.runs(*names) if each.is_alive()]) >= count,
            f"{count} containers run",
        )
        return self.runs(*names)

    def release(self) -> None:
        """Let all containers end."""
        for name in self.names:
            (self.cluster.shown / f"go-{name}").touch()

    def end_containers(self) -> None:
        """Let all containers end, and wait until they have, whether or not a process looks."""
        self.release()
        wait(lambda: not any(each.is_alive() for each in self.runs()), "the containers end")

    def delete(self, name: str) -> None:
        """Delete a Job as kubectl does, also while the server is away."""
        self.deleted.add(name)
        self.names.remove(name)
        options = {"propagationPolicy": "Background"}

        def done() -> bool:
            with contextlib.suppress(OSError):
                path = f"{JOBS}/{name}"
                return self.cluster.api.ask("DELETE", path, options).status in (200, 404)
            return False

        wait(done, f"{name} is deleted")

    def finish(self) -> None:
        """The phase without faults: all ends, and nothing is left; then judge."""
        self.cluster.heal()
        self.release()
        jobs = [
            self.cluster.until(f"{JOBS}/{each}", _is_over, f"{each} ends") for each in self.names
        ]
        wait(lambda: not self._leftover(self.deleted), "pods of deleted Jobs go")
        self.end_containers()
        self.observer.catch_up()
        violations = self._judge(jobs)
        for name in list(self.names):
            self.delete(name)
        wait(lambda: not self._leftover(self.deleted), "pods of deleted Jobs go")
        self.observer.close()
        violations += self.cluster.failures
        self.cluster.failures.clear()
        assert not violations, "\n  ".join(["violations:", *violations])

    def _leftover(self, names: set[str]) -> list[str]:
        pods = self.cluster.api.get(PODS)["items"]
        labels = [each["metadata"].get("labels", {}) for each in pods]
        return [each for each in labels if each.get("batch.kubernetes.io/job-name") in names]

    def _judge(self, jobs: list[Object]) -> list[str]:
        """All violations, once events had their time."""
        violations: list[str] = []

        def is_clean() -> bool:
            violations[:] = checks.all_of(self._history(jobs))
            return not any(checks.MISSING in each for each in violations)

        with contextlib.suppress(AssertionError):
            wait(is_clean, "all events are written", EVENTS_SECONDS)
        return violations

    def _history(self, jobs: list[Object]) -> checks.JobsHistory:
        names = {*self.names, *self.deleted}
        return checks.JobsHistory(
            {each.uid: each for each in self.runs(*names)},
            dict(self.observer.pods),
            dict(self.observer.deleted_while_running),
            jobs,
            self.cluster.api.get(EVENTS)["items"],
            self.deleted,
            self.every_event,
            {each.node for each in self.cluster.keepers.values() if each.kills},
            set(self.observer.gone),
            audit.records(self.cluster.folder.rglob("*.stderr"), f"default/{self._name}-"),
        )


def _is_over(job: Object) -> bool:
    conditions = job["status"].get("conditions") or ()
    return any(
        each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in conditions
    )


@contextlib.contextmanager
def workload(cluster: FaultCluster, name: str) -> Iterator[Workload]:
    """A scenario's Jobs; the end of the block ends them and judges."""
    load = Workload(cluster, name)
    try:
        yield load
        load.finish()
    finally:
        load.observer.close()
