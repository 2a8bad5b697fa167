# SPDX-License-Identifier: Apache-2.0
"""The health of a whole cluster: the worst first, and nothing that goes on by itself."""

from typing import Any

import msgspec

from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.cli import doctor as cli
from refloat.explain import doctor
from refloat.explain.actors import Outlook
from refloat.explain.codes import Code, Severity, severity
from refloat.explain.doctor import ClusterObjects, Report
from refloat.explain.explain_context import ExplainContext
from tests.cases import cases
from tests.unit.explain.test_job import NOW, READY, deleted, old, running, waiting
from tests.unit.explain.test_pod import LOST, NONE, configuration, event
from tests.unit.policy.builders import at, text

SAFE = {"annotations": {"kueue.x-k8s.io/safe-to-forcefully-terminate": "true"}}


def named(name: str, of: Job) -> Job:
    meta = msgspec.structs.replace(of.metadata, name=name, uid=name)
    return msgspec.structs.replace(of, metadata=meta)


def owned(pod: Pod, job: str, *, name: str = "") -> Pod:
    owner = {"kind": "Job", "name": job, "uid": job, "controller": True}
    meta = msgspec.convert(
        {**msgspec.to_builtins(pod.metadata), "ownerReferences": [owner]}, type(pod.metadata)
    )
    if name:
        meta = msgspec.structs.replace(meta, name=name, uid=name)
    return msgspec.structs.replace(pod, metadata=meta)


def examine(*jobs: Job, pods: tuple[Pod, ...] = (), **context: Any) -> Report:
    defaults: dict[str, Any] = {
        "now": at(NOW),
        "nodes": {"n1": READY},
        "recovery": Outlook(configuration()),
    }
    nodes = [each for each in (defaults | context)["nodes"].values() if each is not None]
    return doctor.examine(ClusterObjects(jobs, pods, nodes, ExplainContext(**(defaults | context))))


def test_a_cluster_in_which_all_goes_on_needs_no_person() -> None:
    report = examine(named("a", old()), pods=(owned(running(), "a"),))
    assert (report.jobs, report.pods, report.nodes, report.needs_person) == ((), (), (), False)
    assert cli.render(report, 80)[0] == "Nothing is stuck. 1 active Job, 1 pod, 1 node."


def test_jobs_that_need_a_person_come_before_those_that_wait() -> None:
    waits = named("waits", old(podReplacementPolicy="Failed"))
    image = named("image", old())
    pods = (
        owned(deleted("w", seconds=NOW + 20), "waits"),
        owned(waiting("InvalidImageName"), "image"),
    )
    report = examine(waits, image, pods=pods)
    assert [(each.subject, each.finding.code) for each in report.jobs] == [
        ("job ns/image", Code.IMAGE_NAME),
        ("job ns/waits", Code.TERMINATING),
    ]
    assert report.needs_person
    assert cli.render(report, 80)[0].startswith("A person must act.")


def test_a_job_that_is_just_created_had_no_chance_yet() -> None:
    young = named("young", old())
    meta = msgspec.structs.replace(young.metadata, creation_timestamp=text(NOW - 20))
    assert examine(msgspec.structs.replace(young, metadata=meta)).jobs == ()


def test_a_pod_of_no_job_that_hangs_is_listed() -> None:
    report = examine(pods=(deleted("web"), deleted("soon", seconds=NOW + 20)))
    assert [each.subject for each in report.pods] == ["pod ns/web"]


def test_a_lost_node_has_its_running_and_its_stuck_pods() -> None:
    report = examine(pods=(running("a"), deleted("b"), deleted("c")), nodes={"n1": LOST})
    (node,) = report.nodes
    assert (node.name, node.pods, node.stuck) == ("n1", 1, 2)


@cases(
    "spec metadata outlook want",
    {
        "no opt-in": ({"podReplacementPolicy": "Failed"}, {}, None, True),
        "opt-in": ({"podReplacementPolicy": "Failed"}, SAFE, None, False),
        "no Refloat": ({"podReplacementPolicy": "Failed"}, SAFE, NONE, True),
        "replaced while it terminates": ({}, {}, None, False),
    },
)
def test_a_job_at_risk_would_wait_for_ever(
    spec: dict[str, str], metadata: dict[str, Any], outlook: Outlook | None, want: bool
) -> None:
    job = named("a", old(**spec))
    report = examine(
        job,
        pods=(owned(running(metadata=metadata), "a"),),
        recovery=outlook or Outlook(configuration()),
    )
    assert report.at_risk == (("ns/a",) if want else ())


def test_events_of_another_namespace_are_not_believed() -> None:
    """A tenant cannot make the Job of another look refused."""
    note = "Error creating: pods is forbidden: exceeded quota: q"
    events = {"Job/other/a": [event("FailedCreate", note, 990, "Job", "a")]}
    (trouble,) = examine(named("a", old()), events=events).jobs
    assert trouble.finding.code == Code.NO_CONTROLLER


def test_every_line_fits_the_terminal() -> None:
    pods = tuple(owned(waiting("InvalidImageName"), f"j{i}", name=f"p{i}") for i in range(20))
    report = examine(*(named(f"j{i}", old()) for i in range(20)), pods=pods)
    for columns in (60, 80, 120):
        lines = cli.render(report, columns)
        assert all(len(line) <= columns for line in lines)
    assert "  10 more: use -o json" in lines


def test_each_code_has_a_severity() -> None:
    assert severity(Code.QUOTA) == Severity.ACT
    assert severity(Code.BACK_OFF) == Severity.WAIT
    assert severity(Code.COMPLETE) == Severity.FINE
