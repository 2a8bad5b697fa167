# SPDX-License-Identifier: Apache-2.0
"""On real nodes: four kinds of silence, the return of the node, and what each Job counts.

Each node is a real kubelet with containerd and runc. The freed pods are Refloat's
doing; eviction, scheduling and one of the two Job controllers are Kubernetes' own.
pytest does not collect this module: `python -m tests.kubernetes` runs it.
"""

import os
import signal
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

import click
import pytest

from tests.e2e.node_cluster import wait
from tests.kubernetes import joining
from tests.kubernetes.joining import Object, Place
from tests.kubernetes.real_nodes import images
from tests.kubernetes.real_nodes.cluster import RealCluster
from tests.kubernetes.real_nodes.fixtures import CONTROLLERS, SILENCES, SPARE

FREED = "KueueFailureRecovery"
OPT_IN = "kueue.x-k8s.io/safe-to-forcefully-terminate"

# Writes that it runs, and runs on until the test creates the file `go`.
SCRIPT = "touch /host/$HOSTNAME; while [ ! -e /host/go ]; do sleep 0.2; done"

# A node that returns late makes these tests wait for the controllers' own times.
pytestmark = pytest.mark.timeout(900)


@dataclass
class Case:
    """One Job of one controller, whose first pod runs on the node that falls silent."""

    place: Place
    silence: str
    controller: str
    host: Path
    phases: list[str] = field(default_factory=list)
    """The phases of the first pod, in the order in which the API server sent them."""

    @property
    def job(self) -> str:
        return f"{self.silence}-{self.controller}"

    def submit(self, *, evicted_after: int, grace: int = 2, script: str = SCRIPT) -> None:
        """Start the Job, whose pods may run on the node that will be silent, and on the spare."""
        (self.host / self.job).mkdir()
        tolerations = [
            {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute"}
            | {"tolerationSeconds": evicted_after}
            for key in ("unreachable", "not-ready")
        ]
        self.place.submit(
            self.job,
            script,
            managed_by=CONTROLLERS[self.controller],
            host=self.host / self.job,
            container={"image": images.WORK},
            pod={
                "affinity": joining.on([self.silence, SPARE]),
                "tolerations": tolerations,
                "terminationGracePeriodSeconds": grace,
                "dnsPolicy": "Default",
            },
            annotations={OPT_IN: "true"},
            podReplacementPolicy="Failed",
        )

    def started(self) -> list[str]:
        """The pods whose container has run."""
        return sorted(each.name for each in (self.host / self.job).iterdir() if each.name != "go")

    def first_pod(self) -> Object:
        """The only pod, running on the node that will be silent."""
        wait(self.started, f"no container of {self.job} runs")
        (pod,) = self.place.pods_of(self.job)
        assert pod["spec"]["nodeName"] == self.silence
        return self.place.pod(pod["metadata"]["name"], "Running")

    def follow(self, pod: Object) -> None:
        """Record the phases of a pod from now on."""
        Thread(target=_follow, args=(self.place, pod, self.phases), daemon=True).start()

    def until_replaced(self) -> None:
        wait(lambda: len(self.started()) == 2, f"no replacement of {self.job} runs")

    def until_gone(self) -> None:
        """Wait until the watch has seen the end of the first pod."""
        wait(lambda: self.phases[-1:] == ["gone"], f"{self.job}: {self.phases}")

    def let_end(self) -> Object:
        """Let the containers end; the status of the Job that then completes."""
        (self.host / self.job / "go").touch()
        status, end = self.place.over(self.job)
        assert end["type"] == "Complete", (self.job, end)
        return status


def start(cases: list[Case], **how: Any) -> dict[str, Object]:
    """The first pod of each Job, running; the spare takes pods only after that."""
    place = cases[0].place
    place.kubectl("cordon", SPARE)
    try:
        for case in cases:
            case.submit(**how)
        return {case.job: case.first_pod() for case in cases}
    finally:
        place.kubectl("uncordon", SPARE)


def _follow(place: Place, pod: Object, phases: list[str]) -> None:
    meta = pod["metadata"]
    query = {
        "fieldSelector": f"metadata.name={meta['name']}",
        "resourceVersion": meta["resourceVersion"],
    }
    with place.api.watch(place.pods, **query) as stream:
        for kind, current in iter(stream.next, ("", {})):
            phase = "gone" if kind == "DELETED" else current["status"]["phase"]
            if phases[-1:] != [phase]:
                phases.append(phase)
            if phase == "gone":
                return


@pytest.fixture
def cases(place: Place, tmp_path: Path) -> list[Case]:
    return [Case(place, each, name, tmp_path) for each in SILENCES for name in CONTROLLERS]


def is_freed(pod: Object) -> bool:
    return bool(joining.condition(pod, FREED))


def is_unknown(current: Object) -> bool:
    return joining.condition(current, "Ready").get("status") == "Unknown"


def until_ready(place: Place, name: str) -> None:
    path = f"/api/v1/nodes/{name}"
    place.until(path, lambda each: joining.condition(each, "Ready").get("status") == "True")
    place.until(path, lambda each: not joining.taints(each))


def test_a_node_that_returns_after_the_bound_changes_no_count(
    real: RealCluster, place: Place, cases: list[Case]
) -> None:
    pods = start(cases, evicted_after=1)
    for case in cases:
        case.follow(pods[case.job])
    for name in SILENCES:
        real.nodes[name].silence(name)
    for case in cases:
        path = f"{place.pods}/{pods[case.job]['metadata']['name']}"
        freed = place.until(path, is_freed)
        assert freed["status"]["phase"] == "Failed"
        place.until(f"{place.jobs}/{case.job}", lambda job: job["status"].get("failed") == 1)
        case.until_replaced()
    for name in SILENCES:
        real.nodes[name].give_back()
    for case in cases:
        place.until_gone(f"{place.pods}/{pods[case.job]['metadata']['name']}")
        status = case.let_end()
        assert (status["failed"], status["succeeded"]) == (1, 1), (case.job, status)
        assert len(case.started()) == 2
        case.until_gone()
        click.echo(f"\n{case.job}: {' -> '.join(case.phases)}", nl=False)
    for name in SILENCES:
        until_ready(place, name)


def test_a_node_that_returns_before_the_bound_keeps_what_still_runs(
    real: RealCluster, place: Place, cases: list[Case]
) -> None:
    pods = start(cases, evicted_after=3600)
    for name in SILENCES:
        real.nodes[name].silence(name)
    for name in SILENCES:
        place.until(f"/api/v1/nodes/{name}", is_unknown)
    for name in SILENCES:
        real.nodes[name].give_back()
    for name in SILENCES:
        until_ready(place, name)
    for case in cases:
        # The containers of a machine that was off are gone, and their pod has failed.
        failures = 1 if case.silence == "off" else 0
        if failures:
            case.until_replaced()
        status = case.let_end()
        assert (status.get("failed", 0), status["succeeded"]) == (failures, 1), (case.job, status)
        assert len(case.started()) == 1 + failures
        first = place.api.ask("GET", f"{place.pods}/{pods[case.job]['metadata']['name']}").object
        assert not is_freed(first) if first["kind"] == "Pod" else failures


def test_a_pod_that_returns_before_it_is_counted_has_one_result(
    real: RealCluster, place: Place, tmp_path: Path
) -> None:
    """The Job controller is held up between the write of Refloat and its own count."""
    case = Case(place, "frozen", "kubernetes", tmp_path)
    # Ends with 0 when it is told to end: the kubelet then reports Succeeded.
    pods = start([case], evicted_after=1, script=f"trap 'exit 0' TERM; {SCRIPT}")
    pod = pods[case.job]
    path = f"{place.pods}/{pod['metadata']['name']}"
    case.follow(pod)
    silent = real.nodes["frozen"]
    silent.silence("frozen")
    place.until(path, lambda each: each["metadata"].get("deletionTimestamp"))
    manager = real.plane.pid("kube-controller-manager")
    os.kill(manager, signal.SIGSTOP)
    try:
        place.until(path, is_freed)
        silent.give_back()
        # The kubelet reports how the container ended.
        ended = place.until(path, joining.terminated)
    finally:
        os.kill(manager, signal.SIGCONT)
    place.until_gone(path)
    click.echo(
        f"\n{case.job}: {' -> '.join(case.phases)}; then counted as {ended['status']['phase']}"
    )
    succeeded = ended["status"]["phase"] == "Succeeded"
    if not succeeded:
        case.until_replaced()
    status = case.let_end()
    assert (status["succeeded"], status.get("failed", 0)) == (1, 0 if succeeded else 1)
    assert len(case.started()) == (1 if succeeded else 2)
    until_ready(place, "frozen")
