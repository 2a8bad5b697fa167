# SPDX-License-Identifier: Apache-2.0
"""What is seen of a failure that many components have a part in, to the second (behaviour G).

Nothing is set by hand here: nodes fall silent, users delete, evict and taint,
and what follows is done by the controllers of a whole cluster. Deadlines are
whole seconds; what is noticed by a look every so often may come as much later,
and then a test says how much.
"""

import pytest

from refloat.agent.fleet import Fault
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.client import kinds
from refloat.client.contract import DeleteOptions
from refloat.sim.cluster import NAMESPACE, Cluster, Line
from refloat.sim.journal import GONE
from tests.virtual import virtual

# Stops 10 s after SIGTERM, well within its grace of 30 s.
SLOW = {"main": {"seconds": None, "stopSeconds": 10}}
FAILING = {"main": {"seconds": 5, "exitCode": 1}}

IGNORES_DISRUPTIONS = {
    "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
}

OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}

STARTED: list[Line] = [(0, "Pending unbound"), (0, "Pending"), (0, "Running ready")]


async def running(c: Cluster, **spec: object) -> Pod:
    """A Job's one pod, which runs; time counts from now."""
    await c.submit(**spec)  # type: ignore[arg-type]
    await c.until(0)
    assert c.history(c.pods()[0]) == STARTED
    await c.mark()
    return c.pods()[0]


async def evicted(c: Cluster, pod: Pod) -> None:
    await c.client.evict(pod.metadata.name, namespace=NAMESPACE)


async def deleted(c: Cluster, pod: Pod) -> None:
    await c.client.delete(kinds.PODS, pod.metadata.name, namespace=NAMESPACE)


async def lost(c: Cluster, pod: Pod, fault: Fault = "crash") -> int:
    """Make the pod's node silent now; the second in which that is noticed (C3.1, C3.2).

    The last beat of its lease is up to 10.4 s ago, and a look comes every 5 s.
    """
    node = c.node_of(pod)
    c.fleet.fail(node, fault)
    beat = await c.last_beat(node)
    await c.until(60)
    noticed = c.lost_at(node)
    assert 50 < noticed - beat <= 55.5
    assert c.history(c.node(node)) == [
        (noticed, "Ready=Unknown"),
        (noticed, "Ready=Unknown unreachable:NoSchedule"),
        (noticed, "Ready=Unknown unreachable:NoExecute unreachable:NoSchedule"),
    ]
    return noticed


def target(pod: Object) -> tuple[str, str]:
    """Who says that the pod is disrupted, and how."""
    conditions = pod["status"]["conditions"]
    condition = next(each for each in conditions if each["type"] == "DisruptionTarget")
    return condition["reason"], condition["message"]


def shifted(lines: list[Line], seconds: int) -> list[Line]:
    """The lines with seconds that count from another moment."""
    return [(when - seconds, text) for when, text in lines]


def counts(active: int, terminating: int, failed: int, succeeded: int = 0, more: str = "") -> str:
    """The counts of a Job's pods."""
    counts = f"active {active} terminating {terminating} failed {failed} succeeded {succeeded}"
    return f"{counts} {more}" if more else counts


# -- G1 ----------------------------------------------------------------------------


@virtual(Cluster)
async def test_a_pod_that_fails_is_replaced_after_ever_longer_until_the_limit(c: Cluster) -> None:
    """G1, A11.4: from one end to the next start 10, 20, 40, 80, 160, 320 s pass."""
    await c.submit(script=FAILING, backoffLimit=6)
    await c.until(1000)
    assert [c.history(pod)[0][0] for pod in c.pods()] == [0, 15, 40, 85, 170, 335, 660]
    assert c.history(c.pods()[0])[3:] == [(5, "Failed")]
    lines = c.history(c.job())
    assert lines[:5] == [
        (0, counts(0, 0, 0)),
        (0, counts(1, 0, 0)),
        (6, counts(0, 0, 0, more="uncounted 1+0")),
        (6, counts(0, 0, 1)),
        (15, counts(1, 0, 1)),
    ]
    end = "FailureTarget=BackoffLimitExceeded"
    assert lines[-2:] == [
        (666, counts(0, 0, 6, more=f"uncounted 1+0 {end}")),
        (666, counts(0, 0, 7, more=f"{end} Failed=BackoffLimitExceeded")),
    ]


# -- G2 ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "want_failed"), [(None, 1), (IGNORES_DISRUPTIONS, 0)], ids=["counted", "ignored"]
)
@virtual(Cluster)
async def test_a_node_that_is_deleted_takes_its_pods_along(
    c: Cluster, policy: Object | None, want_failed: int
) -> None:
    """G2, C1.5: after 40 to 60 s. The deletion is the last event of the pod (A11.6)."""
    pod = await running(c, **({"podFailurePolicy": policy} if policy else {}))
    c.fleet.fail(c.node_of(pod), "crash")
    await c.client.delete(kinds.NODES, c.node_of(pod))
    await c.until(90)
    lines = c.history(pod, since=-0.5)
    when = lines[0][0]
    assert 40 <= when <= 60
    assert shifted(lines, when) == [
        (0, "Failed ready DeletionByPodGC"),
        (0, "Failed ready terminating(0) DeletionByPodGC"),
        (1, GONE),
    ]
    assert c.job().status.failed == want_failed
    assert c.history(c.pods()[1])[0] == (when + 10, "Pending unbound")


@virtual(Cluster)
async def test_a_node_that_comes_back_in_time_keeps_its_pods(c: Cluster) -> None:
    """C1.5: a name is a name; a new node of that name within 40 s has its pods again."""
    pod = await running(c)
    node = await c.raw("nodes", c.node_of(pod))
    await c.client.delete(kinds.NODES, c.node_of(pod))
    await c.until(30)
    body = {"metadata": {"name": c.node_of(pod)}, "status": node["status"]}
    await c.client.create(kinds.NODES, body)
    await c.until(120)
    assert c.history(pod, since=-0.5) == []


# -- G3, G4 ------------------------------------------------------------------------


@virtual(Cluster)
async def test_a_drained_pod_is_judged_when_it_has_ended(c: Cluster) -> None:
    """G3: until its containers have stopped, the pod is terminating, not failed, not replaced.

    That the policy ignores the failure does not spare the Job the delay (A11.3).
    """
    pod = await running(c, script=SLOW, podFailurePolicy=IGNORES_DISRUPTIONS)
    await c.client.evict(pod.metadata.name, namespace=NAMESPACE)
    assert target(await c.raw("pods", pod.metadata.name)) == (
        "EvictionByEvictionAPI",
        "Eviction API: evicting",
    )
    await c.until(60)
    evicted = "EvictionByEvictionAPI"
    assert c.history(pod, since=-0.5) == [
        (0, f"Running ready {evicted}"),
        (0, f"Running ready terminating(30) {evicted}"),
        (10, f"Failed terminating(30) {evicted}"),
        (10, f"Failed terminating(0) {evicted}"),
        (11, GONE),
    ]
    assert c.history(c.job(), since=-0.5) == [
        (1, counts(0, 1, 0)),
        (11, counts(0, 0, 0)),
        (20, counts(1, 0, 0)),
    ]
    assert c.history(c.pods()[1])[0] == (20, "Pending unbound")


@virtual(Cluster)
async def test_a_drained_pod_is_replaced_while_it_ends(c: Cluster) -> None:
    """G4, A11.6: counted at its deletion, replaced 10 s later, while still terminating."""
    pod = await running(c, script={"main": {"seconds": None, "stopSeconds": 25}})
    await c.client.evict(pod.metadata.name, namespace=NAMESPACE)
    await c.until(60)
    evicted = "EvictionByEvictionAPI"
    assert c.history(pod, since=-0.5) == [
        (0, f"Running ready {evicted}"),
        (0, f"Running ready terminating(30) {evicted}"),
        (25, f"Failed terminating(30) {evicted}"),
        (25, f"Failed terminating(0) {evicted}"),
        (25, GONE),
    ]
    assert c.history(c.job(), since=-0.5) == [
        (1, counts(0, 1, 0, more="uncounted 1+0")),
        (1, counts(0, 1, 1)),
        (10, counts(1, 1, 1)),
        (26, counts(1, 0, 1)),
    ]
    assert c.history(c.pods()[1])[0] == (10, "Pending unbound")


# -- G5, G6, and KEP-6757's motivation ---------------------------------------------


@virtual(Cluster)
async def test_a_pod_on_a_dead_node_stays_terminating_until_the_node_returns(c: Cluster) -> None:
    """G5, and KEP-6757's first flow: the node is lost before its pod is marked for termination.

    50 s until that is noticed, 300 s of toleration, and then nothing, for hours;
    when the node is back, its agent ends the pod as requested (D8.1).
    """
    pod = await running(c, script=SLOW, podReplacementPolicy="Failed")
    noticed = await lost(c, pod, "freeze")
    await c.until(3600)
    by_taint = "DeletionByTaintManager"
    assert shifted(c.history(pod, since=-0.5), noticed) == [
        (0, "Running"),
        (300, f"Running {by_taint}"),
        (300, f"Running terminating(30) {by_taint}"),
    ]
    assert shifted(c.history(c.job(), since=-0.5), noticed) == [(301, counts(0, 1, 0))]
    assert target(await c.raw("pods", pod.metadata.name))[1] == (
        "Taint manager: deleting due to NoExecute taint"
    )
    assert len(c.pods()) == 1

    await c.mark()
    c.fleet.heal(c.node_of(pod))
    await c.until(60)
    assert c.history(pod, since=-0.5) == [
        (0, f"Running ready terminating(30) {by_taint}"),
        (10, f"Failed terminating(30) {by_taint}"),
        (10, f"Failed terminating(0) {by_taint}"),
        (11, GONE),
    ]
    assert c.history(c.pods()[1])[0] == (20, "Pending unbound")


@virtual(Cluster)
async def test_a_pod_that_was_to_end_stays_when_its_node_is_lost(c: Cluster) -> None:
    """KEP-6757's second flow: the node is lost after its pod was marked for termination.

    The taint finds the pod terminating already, and adds only the condition (C2.9).
    """
    pod = await running(c, script=SLOW, podReplacementPolicy="Failed")
    await deleted(c, pod)
    await c.until(1)
    noticed = await lost(c, pod)
    await c.until(3600)
    assert c.history(pod, since=-0.5) == [
        (0, "Running ready terminating(30)"),
        (noticed, "Running terminating(30)"),
        (noticed + 300, "Running terminating(30) DeletionByTaintManager"),
    ]
    assert c.history(c.job(), since=-0.5) == [(1, counts(0, 1, 0))]
    assert len(c.pods()) == 1


@virtual(Cluster)
async def test_a_node_that_returns_within_the_toleration_keeps_its_pods(c: Cluster) -> None:
    """KEP-6757: if the heartbeat is resumed in time, the pods continue running."""
    pod = await running(c, podReplacementPolicy="Failed")
    await lost(c, pod, "partition")
    await c.until(340)
    c.fleet.heal(c.node_of(pod))
    await c.until(1000)
    assert [text for _, text in c.history(pod, since=-0.5)] == ["Running", "Running ready"]
    assert c.history(c.node(c.node_of(pod)))[-1][1] == "Ready=True"


@virtual(Cluster)
async def test_out_of_service_frees_the_job_of_a_dead_node(c: Cluster) -> None:
    """G6, C9.1: the taint deletes, and the next look of the garbage collector fails the pod.

    The pod was not ready when its node was lost, so no delay is left (A11.7).
    """
    pod = await running(c, script=SLOW, podReplacementPolicy="Failed")
    await lost(c, pod)
    await c.mark()
    await c.taint(c.node_of(pod), OUT_OF_SERVICE)
    await c.until(60)
    by_taint = "DeletionByTaintManager"
    lines = c.history(pod, since=-0.5)
    assert lines[:2] == [(0, f"Running {by_taint}"), (0, f"Running terminating(30) {by_taint}")]
    when = lines[2][0]
    assert when <= 20
    assert shifted(lines[2:], when) == [
        (0, f"Failed terminating(30) {by_taint}"),
        (0, f"Failed terminating(0) {by_taint}"),
        (1, GONE),
    ]
    assert c.history(c.pods()[1])[0] == (when + 1, "Pending unbound")


# -- G8, G9, G11 -------------------------------------------------------------------


@virtual(Cluster)
async def test_a_suspended_job_ends_its_pods_and_counts_none(c: Cluster) -> None:
    """G8."""
    pod = await running(c, script=SLOW)
    await c.client.patch(kinds.JOBS, "j", {"spec": {"suspend": True}}, namespace=NAMESPACE)
    await c.until(60)
    assert c.history(pod, since=-0.5) == [
        (0, "Running ready terminating(30)"),
        (10, "Failed terminating(30)"),
        (10, "Failed terminating(0)"),
        (10, GONE),
    ]
    assert c.history(c.job(), since=-0.5) == [
        (0, counts(0, 1, 0, more="Suspended=JobSuspended")),
        (11, counts(0, 0, 0, more="Suspended=JobSuspended")),
    ]
    assert c.job().status.start_time is None


@virtual(Cluster)
async def test_a_job_over_its_deadline_fails_when_its_pods_have_ended(c: Cluster) -> None:
    """G9: counted failed at once, but finished only when nothing is terminating any more."""
    await c.submit(script=SLOW, activeDeadlineSeconds=60)
    await c.until(100)
    pod = c.pods()[0]
    assert c.history(pod)[3:] == [
        (60, "Running ready terminating(30)"),
        (70, "Failed terminating(30)"),
        (70, "Failed terminating(0)"),
        (70, GONE),
    ]
    over = "FailureTarget=DeadlineExceeded"
    assert c.history(c.job())[2:] == [
        (60, counts(1, 0, 0, more=f"uncounted 1+0 {over}")),  # before its pod is deleted
        (60, counts(0, 1, 0, more=f"uncounted 1+0 {over}")),
        (60, counts(0, 1, 1, more=over)),
        (71, counts(0, 0, 1, more=over)),
        (71, counts(0, 0, 1, more=f"{over} Failed=DeadlineExceeded")),
    ]


@virtual(Cluster)
async def test_stragglers_of_a_success_are_deleted_and_not_counted(c: Cluster) -> None:
    """G11: complete only when the pods have ended, and that is the completion time."""
    await c.submit(
        script={"main/0": {"seconds": 5}, **SLOW},
        completions=3,
        parallelism=3,
        completionMode="Indexed",
        successPolicy={"rules": [{"succeededIndexes": "0"}]},
    )
    await c.until(60)
    first, *stragglers = c.pods()
    assert c.history(first)[3:] == [(5, "Succeeded")]
    for pod in stragglers:
        assert c.history(pod)[3:] == [
            (6, "Running ready terminating(30)"),
            (16, "Failed terminating(30)"),
            (16, "Failed terminating(0)"),
            (16, GONE),
        ]
    criteria = "SuccessCriteriaMet=SuccessPolicy"
    assert c.history(c.job())[2:] == [
        (6, counts(2, 0, 0, 1, criteria)),  # before they are deleted
        (6, counts(0, 2, 0, 1, criteria)),
        (17, counts(0, 0, 0, 1, criteria)),
        (17, counts(0, 0, 0, 1, f"{criteria} Complete=SuccessPolicy")),
    ]
    assert c.at(c.job().status.completion_time) == 17


# -- G10, G12 ----------------------------------------------------------------------


@virtual(Cluster)
async def test_a_foreground_deletion_waits_for_a_pod_on_a_dead_node(c: Cluster) -> None:
    """G10, A20.1, C8.6: the tracking finalizer goes at once, and yet the pod stays."""
    pod = await running(c, script=SLOW)
    await lost(c, pod)
    await c.mark()
    how = DeleteOptions(propagation="Foreground")
    await c.client.delete(kinds.JOBS, "j", namespace=NAMESPACE, options=how)
    await c.until(1800)
    newest, job = await c.raw("pods", pod.metadata.name), await c.raw("jobs", "j")
    assert "finalizers" not in newest["metadata"]
    assert newest["metadata"]["deletionGracePeriodSeconds"] == 30
    assert job["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert len(c.pods()) == 1

    await c.mark()
    await c.client.delete(
        kinds.PODS, pod.metadata.name, namespace=NAMESPACE, options=DeleteOptions(grace_seconds=0)
    )
    await c.until(5)
    assert c.history(pod, since=-0.5)[-1] == (0, GONE)
    assert c.history(c.job(), since=-0.5)[-1] == (0, GONE)


@virtual(Cluster)
async def test_an_unscheduled_pod_is_gone_within_a_second(c: Cluster) -> None:
    """G12, C8.1: there is no grace, and only the finalizer holds the pod."""
    pod = await unschedulable(c, "TerminatingOrFailed")
    await deleted(c, pod)
    await c.until(60)
    assert c.history(pod, since=-0.5) == [(0, "Pending unbound terminating(0)"), (1, GONE)]
    assert c.history(c.job(), since=-0.5) == [
        (1, counts(0, 1, 0, more="uncounted 1+0")),
        (1, counts(0, 1, 1)),
        (2, counts(0, 0, 1)),
        (10, counts(1, 0, 1)),
    ]


@virtual(Cluster)
async def test_an_unscheduled_pod_that_must_fail_first_waits_for_a_collector(c: Cluster) -> None:
    """G12, C1.9: at most 20 s; replaced 10 s after the deletion, if that is not over."""
    pod = await unschedulable(c, "Failed")
    await deleted(c, pod)
    await c.until(60)
    lines = c.history(pod, since=-0.5)
    when = lines[1][0]
    assert when <= 20
    assert lines == [
        (0, "Pending unbound terminating(0)"),
        (when, "Failed unbound terminating(0)"),
        (when + 1, GONE),
    ]
    replaced = max(10, when + 1)
    first, *_, last = c.history(c.job(), since=-0.5)
    assert (first, last) == ((1, counts(0, 1, 0)), (replaced, counts(1, 0, 1)))
    assert c.history(c.pods()[1])[0][0] == replaced


async def unschedulable(c: Cluster, policy: str) -> Pod:
    await c.submit(podReplacementPolicy=policy, pod={"nodeSelector": {"no": "where"}})
    await c.until(0)
    await c.mark()
    return c.pods()[0]
