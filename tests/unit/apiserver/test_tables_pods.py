# SPDX-License-Identifier: Apache-2.0
"""The rows of pods: cells that a Kubernetes 1.36 API server gives for the same objects."""

from datetime import UTC, datetime
from typing import Any

import pytest

from refloat.api import kinds
from refloat.api.meta import Object
from refloat.apiserver.tables import render
from tests.cases import cases

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
PODS = kinds.of("pods")
READY, STATE, RESTARTS = 1, 2, 3

RUNNING = {"running": {"startedAt": "2026-01-01T11:00:00Z"}}


def waiting(reason: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason} if reason else {}}


def ended(exit_code: int, reason: str = "", **more: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": exit_code, **({"reason": reason} if reason else {}), **more}}


COMPLETED = ended(0, "Completed")


def container(state: dict[str, Any] | None = None, name: str = "c", **more: Any) -> dict[str, Any]:
    status = {"name": name, "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    return status | ({"state": state} if state is not None else {}) | more


def restarted(count: int, at: str, **more: Any) -> dict[str, Any]:
    last = {"terminated": {"exitCode": 1, "finishedAt": at}}
    return container(RUNNING, restartCount=count, lastState=last, **more)


def pod(
    containers: int = 1,
    inits: tuple[str, ...] = (),
    *,
    conditions: tuple[tuple[str, str], ...] = (),
    spec: dict[str, Any] | None = None,
    deleted: bool = False,
    **status: Any,
) -> Object:
    """A pod with `inits` init containers, those whose name begins with `s` being sidecars."""
    metadata = {"name": "p", "namespace": "n", "creationTimestamp": "2026-01-01T11:00:00Z"}
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T11:59:00Z"
    whole = {"containers": [{"name": f"c{each}"} for each in range(containers)], **(spec or {})}
    if inits:
        whole["initContainers"] = [
            {"name": each, "restartPolicy": "Always"} if each.startswith("s") else {"name": each}
            for each in inits
        ]
    if conditions:
        status["conditions"] = [{"type": kind, "status": value} for kind, value in conditions]
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": metadata,
        "spec": whole,
        "status": {"phase": "Pending", **status},
    }


def cell(obj: Object, index: int) -> Any:
    return render.row(PODS, obj, NOW)[index]


@cases(
    "obj want",
    {
        "the phase, when nothing else is known": (pod(), "Pending"),
        "the reason before it": (pod(phase="Failed", reason="Evicted"), "Evicted"),
        "a container waits": (
            pod(containerStatuses=[container(waiting("ContainerCreating"))]),
            "ContainerCreating",
        ),
        "a container waits and nobody says why": (
            pod(phase="Running", containerStatuses=[container(waiting())]),
            "Running",
        ),
        "a container failed with a reason": (
            pod(phase="Failed", containerStatuses=[container(ended(1, "Error"))]),
            "Error",
        ),
        "a container failed without a reason": (
            pod(phase="Failed", containerStatuses=[container(ended(1))]),
            "ExitCode:1",
        ),
        "a container was killed without a reason": (
            pod(phase="Failed", containerStatuses=[container(ended(137, signal=9))]),
            "Signal:9",
        ),
        "a container succeeded without a reason": (
            pod(phase="Succeeded", containerStatuses=[container(ended(0))]),
            "ExitCode:0",
        ),
        "the first container that stands still names the state": (
            pod(2, containerStatuses=[container(ended(1, "A")), container(waiting("B"))]),
            "A",
        ),
        "all containers completed": (
            pod(2, phase="Succeeded", containerStatuses=[container(COMPLETED)] * 2),
            "Completed",
        ),
        "one completed and one runs in a ready pod": (
            pod(
                2,
                phase="Running",
                conditions=(("Ready", "True"),),
                containerStatuses=[container(COMPLETED), container(RUNNING, ready=True)],
            ),
            "Running",
        ),
        "one completed and one runs in a pod that is not ready": (
            pod(
                2,
                phase="Running",
                conditions=(("Ready", "False"),),
                containerStatuses=[container(COMPLETED), container(RUNNING, ready=True)],
            ),
            "NotReady",
        ),
        "one completed and one runs but is not ready": (
            pod(2, phase="Running", containerStatuses=[container(COMPLETED), container(RUNNING)]),
            "Completed",
        ),
        "one completed and a later one failed": (
            pod(
                2,
                phase="Failed",
                containerStatuses=[container(COMPLETED), container(ended(2, "Error"))],
            ),
            "Error",
        ),
    },
)
def test_the_containers_name_the_state(obj: Object, want: str) -> None:
    assert cell(obj, STATE) == want


def gated(**more: Any) -> Object:
    condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    return pod(**more) | {"status": {"phase": "Pending", "conditions": [condition]}}


def test_a_gated_pod_says_so() -> None:
    assert cell(gated(), STATE) == "SchedulingGated"


def test_a_gated_pod_that_is_deleted_is_terminating() -> None:
    assert cell(gated(deleted=True), STATE) == "Terminating"


@cases(
    "obj want",
    {
        "the first is awaited": (
            pod(inits=("a", "b"), initContainerStatuses=[container(waiting(), "a")]),
            "Init:0/2",
        ),
        "the second is awaited": (
            pod(
                inits=("a", "b"),
                initContainerStatuses=[
                    container(ended(0), "a"),
                    container(waiting("PodInitializing"), "b"),
                ],
            ),
            "Init:1/2",
        ),
        "one runs": (
            pod(inits=("a",), initContainerStatuses=[container(RUNNING, "a")]),
            "Init:0/1",
        ),
        "one is backed off": (
            pod(inits=("a",), initContainerStatuses=[container(waiting("CrashLoopBackOff"), "a")]),
            "Init:CrashLoopBackOff",
        ),
        "one failed with a reason": (
            pod(inits=("a",), initContainerStatuses=[container(ended(1, "Error"), "a")]),
            "Init:Error",
        ),
        "one failed without a reason": (
            pod(inits=("a",), initContainerStatuses=[container(ended(3), "a")]),
            "Init:ExitCode:3",
        ),
        "one was killed": (
            pod(inits=("a",), initContainerStatuses=[container(ended(137, signal=9), "a")]),
            "Init:Signal:9",
        ),
        "a started sidecar is passed by": (
            pod(
                inits=("s", "a"),
                initContainerStatuses=[
                    container(RUNNING, "s", started=True),
                    container(waiting(), "a"),
                ],
            ),
            "Init:1/2",
        ),
        "a sidecar that has not started is awaited": (
            pod(
                inits=("s",),
                initContainerStatuses=[container(RUNNING, "s", started=False)],
                containerStatuses=[container(waiting("PodInitializing"))],
            ),
            "Init:0/1",
        ),
        "an initialized pod is judged by its containers": (
            pod(
                inits=("a",),
                conditions=(("Initialized", "True"),),
                initContainerStatuses=[container(RUNNING, "a")],
                containerStatuses=[container(waiting("CrashLoopBackOff"))],
            ),
            "CrashLoopBackOff",
        ),
        "an initialized pod whose containers have nothing to say": (
            pod(
                inits=("a",),
                conditions=(("Initialized", "True"),),
                initContainerStatuses=[container(RUNNING, "a")],
                containerStatuses=[container(RUNNING, ready=True)],
            ),
            "Init:0/1",
        ),
        "nothing is known of the init containers": (
            pod(inits=("a",), containerStatuses=[container(waiting("PodInitializing"))]),
            "PodInitializing",
        ),
    },
)
def test_initialization_names_the_state(obj: Object, want: str) -> None:
    assert cell(obj, STATE) == want


@cases(
    "obj want",
    {
        "a running pod": (pod(deleted=True, phase="Running"), "Terminating"),
        "its node is lost": (pod(deleted=True, phase="Running", reason="NodeLost"), "Unknown"),
        "its node is lost and the pod is known to have failed": (
            pod(deleted=True, phase="Failed", reason="NodeLost"),
            "Unknown",
        ),
        "a finished pod shows how it ended": (
            pod(deleted=True, phase="Succeeded", containerStatuses=[container(COMPLETED)]),
            "Completed",
        ),
    },
)
def test_deletion_overrules_the_state(obj: Object, want: str) -> None:
    assert cell(obj, STATE) == want


def test_a_lost_node_alone_does_not_make_a_pod_unknown() -> None:
    assert cell(pod(phase="Running", reason="NodeLost"), STATE) == "NodeLost"


@cases(
    "obj want",
    {
        "nothing reported": (pod(3), "0/3"),
        "one of two is ready": (
            pod(2, containerStatuses=[container(RUNNING, ready=True), container(RUNNING)]),
            "1/2",
        ),
        "ready, but ended": (pod(containerStatuses=[container(ended(0), ready=True)]), "0/1"),
        "sidecars count, other init containers do not": (
            pod(
                inits=("s", "a"),
                initContainerStatuses=[
                    container(RUNNING, "s", started=True, ready=True),
                    container(ended(0), "a"),
                ],
                containerStatuses=[container(RUNNING, ready=True)],
            ),
            "2/2",
        ),
        "containers do not count before initialization is over": (
            pod(
                inits=("a",),
                initContainerStatuses=[container(RUNNING, "a")],
                containerStatuses=[container(RUNNING, ready=True)],
            ),
            "0/1",
        ),
    },
)
def test_ready_counts_containers_and_sidecars(obj: Object, want: str) -> None:
    assert cell(obj, READY) == want


@cases(
    "obj want",
    {
        "none": (pod(), "0"),
        "one": (
            pod(2, containerStatuses=[restarted(1, "2026-01-01T11:00:00Z"), container(RUNNING)]),
            "1 (60m ago)",
        ),
        "the last of several containers": (
            pod(
                2,
                containerStatuses=[
                    restarted(1, "2026-01-01T11:55:00Z"),
                    restarted(2, "2026-01-01T11:00:00Z"),
                ],
            ),
            "3 (5m ago)",
        ),
        "time unknown": (pod(containerStatuses=[container(RUNNING, restartCount=4)]), "4"),
        "an end without a restart": (
            pod(containerStatuses=[restarted(0, "2026-01-01T11:55:00Z")]),
            "0",
        ),
        "only init containers during initialization": (
            pod(
                inits=("a",),
                initContainerStatuses=[restarted(5, "2026-01-01T11:55:00Z", name="a")],
                containerStatuses=[restarted(2, "2026-01-01T11:59:00Z")],
            ),
            "5 (5m ago)",
        ),
        "sidecars and containers after it": (
            pod(
                inits=("a", "s"),
                initContainerStatuses=[
                    container(ended(0), "a", restartCount=7),
                    restarted(1, "2026-01-01T11:55:00Z", name="s", started=True),
                ],
                containerStatuses=[container(RUNNING, restartCount=2)],
            ),
            "3 (5m ago)",
        ),
    },
)
def test_restarts_are_counted_and_dated(obj: Object, want: str) -> None:
    assert cell(obj, RESTARTS) == want


def test_wide_columns_are_none_when_nothing_is_set() -> None:
    assert render.row(PODS, pod(), NOW)[4:] == ["60m", "<none>", "<none>", "<none>", "<none>"]


def test_wide_columns_show_addresses_nodes_and_gates() -> None:
    gates = [{"conditionType": "x/a"}, {"conditionType": "x/b"}, {"conditionType": "x/c"}]
    obj = pod(
        spec={"nodeName": "n1", "readinessGates": gates},
        conditions=(("x/a", "True"), ("x/b", "False")),
        podIP="10.0.0.1",
        podIPs=[{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
        nominatedNodeName="n2",
    )
    assert render.row(PODS, obj, NOW)[5:] == ["10.0.0.1", "n1", "n2", "1/3"]


@pytest.mark.parametrize(
    ("phase", "message"),
    [("Succeeded", "The pod has completed successfully."), ("Failed", "The pod failed.")],
)
def test_a_finished_pod_has_a_row_condition(phase: str, message: str) -> None:
    [row] = render.table(PODS, [pod(phase=phase)], {}, now=NOW)["rows"]
    want = [{"type": "Completed", "status": "True", "reason": phase, "message": message}]
    assert row["conditions"] == want
    assert list(row) == ["cells", "conditions", "object"]


def test_an_unfinished_pod_has_no_row_condition() -> None:
    [row] = render.table(PODS, [pod(phase="Running")], {}, now=NOW)["rows"]
    assert list(row) == ["cells", "object"]
