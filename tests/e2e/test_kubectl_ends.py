# SPDX-License-Identifier: Apache-2.0
"""kubectl waits, watches and deletes."""

import json
import subprocess
from datetime import datetime

import pytest

from tests import builders
from tests.e2e import cluster
from tests.e2e.cluster import Kubectl

RUNNING = '{"status":{"phase":"Running"}}'
READY = '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'


def patch_status(kubectl: Kubectl, name: str, patch: str) -> None:
    kubectl("patch", "pod", name, "--subresource", "status", "-p", patch)


def end(process: "subprocess.Popen[bytes]") -> tuple[int, str]:
    """The exit code of a kubectl that must end without a signal, and the output."""
    output, _ = process.communicate(timeout=cluster.PATIENCE_SECONDS)
    return process.returncode, output.decode()


# -- watching ------------------------------------------------------------


def test_get_watch_shows_each_change_as_a_row(kubectl: Kubectl) -> None:
    with kubectl.started("get", "pods", "-w", "--output-watch-events") as lines:
        kubectl("create", "-f", "-", stdin=builders.pod("a", node="n1"))
        assert lines.next().split() == ["EVENT", "NAME", "READY", "STATUS", "RESTARTS", "AGE"]
        assert lines.next().split()[:4] == ["ADDED", "a", "0/1", "Pending"]
        patch_status(kubectl, "a", RUNNING)
        assert lines.next().split()[:4] == ["MODIFIED", "a", "0/1", "Running"]
        kubectl("delete", "pod", "a", "--wait=false")
        assert lines.next().split()[:4] == ["MODIFIED", "a", "0/1", "Terminating"]
        kubectl("delete", "pod", "a", "--force")
        assert lines.next().split()[:4] == ["MODIFIED", "a", "0/1", "Terminating"]
        assert lines.next().split()[:4] == ["DELETED", "a", "0/1", "Terminating"]


def test_get_watch_begins_with_what_is_there(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=builders.job("a"))
    with kubectl.started("get", "job", "a", "-w", "-o", "name") as lines:
        assert lines.next() == "job.batch/a"
        kubectl("label", "job", "a", "x=1")
        assert lines.next() == "job.batch/a"


def test_get_watch_shows_what_comes_to_be_selected_and_what_ceases_to_be(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=builders.config_map("a", labels={"x": "1"}))
    with kubectl.started("get", "cm", "-w", "-l", "x", "--output-watch-events") as lines:
        assert lines.next().split()[:2] == ["EVENT", "NAME"]
        assert lines.next().split()[:2] == ["ADDED", "a"]
        kubectl("create", "configmap", "b")
        kubectl("label", "cm", "b", "x=2")
        assert lines.next().split()[:2] == ["ADDED", "b"]
        kubectl("label", "cm", "a", "x-")
        assert lines.next().split()[:2] == ["DELETED", "a"]


# -- waiting -------------------------------------------------------------


@pytest.mark.parametrize(
    "condition",
    ["condition=Ready", "jsonpath={.status.conditions[0].type}=Ready"],
    ids=["condition", "jsonpath"],
)
def test_wait_ends_when_it_comes_true(kubectl: Kubectl, condition: str) -> None:
    kubectl("create", "-f", "-", stdin=builders.pod("a"))
    with kubectl.process("wait", "pod/a", "--for", condition, "--timeout", "25s") as process:
        patch_status(kubectl, "a", READY)
        assert end(process) == (0, "pod/a condition met\n")


def test_wait_gives_up_when_it_does_not_come_true(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=builders.pod("a"))
    error = kubectl.refused("wait", "pod/a", "--for", "condition=Ready", "--timeout", "100ms")
    assert error.endswith("error: timed out waiting for the condition on pods/a\n")


def test_wait_for_the_deletion_ends_with_it(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=builders.pod("a", node="n1"))
    # No clock decides: zero looks once, and a negative time is a week. With a short one
    # kubectl's own rate limiter may give up first, in other words.
    error = kubectl.refused("wait", "pod/a", "--for", "delete", "--timeout", "0")
    assert error.endswith("error: condition not met for pods/a\n")
    with kubectl.process("wait", "pod/a", "--for", "delete", "--timeout", "-1s") as process:
        kubectl("delete", "pod", "a", "--force")
        assert end(process)[0] == 0


def test_wait_for_the_end_of_a_job(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=builders.job("a"))
    args = ("wait", "job/a", "--for", "condition=Failed", "--timeout", "25s")
    with kubectl.process(*args) as process:
        status = {
            "startTime": "2026-01-01T00:00:00Z",
            "conditions": [
                {"type": kind, "status": "True", "reason": "BackoffLimitExceeded"}
                for kind in ("FailureTarget", "Failed")
            ],
        }
        patch = json.dumps({"status": status})
        kubectl("patch", "job", "a", "--subresource", "status", "--type", "merge", "-p", patch)
        assert end(process) == (0, "job.batch/a condition met\n")


# -- deleting ------------------------------------------------------------


def terminating(kubectl: Kubectl, name: str) -> tuple[datetime, int]:
    """The deletion timestamp and the grace of a pod."""
    metadata = kubectl.object("get", "pod", name)["metadata"]
    stamp = datetime.fromisoformat(metadata["deletionTimestamp"])
    return stamp, metadata["deletionGracePeriodSeconds"]


def test_delete_waits_until_it_is_gone(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "a")
    output = kubectl("delete", "cm", "a")
    assert output.startswith('configmap "a" deleted')
    assert kubectl("get", "cm", "a", "--ignore-not-found") == ""


def test_a_pod_on_no_node_goes_at_once(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=builders.pod("a"))
    kubectl("delete", "pod", "a")
    assert kubectl("get", "pods", "-o", "name") == ""


def test_delete_gives_a_pod_on_a_node_its_grace(kubectl: Kubectl) -> None:
    """behaviour C8.1, C8.2"""
    kubectl("create", "-f", "-", stdin=builders.pod("a", node="n1"))
    output = kubectl("delete", "pod", "a", "--grace-period=20", "--wait=false")
    assert output.startswith('pod "a" deleted')
    assert terminating(kubectl, "a")[1] == 20
    assert kubectl("get", "pod", "a", "--no-headers").split()[2] == "Terminating"


def test_a_second_delete_shortens_the_grace_and_never_lengthens_it(kubectl: Kubectl) -> None:
    """behaviour C8.4"""
    body = builders.pod("a", node="n1", spec={"terminationGracePeriodSeconds": 3600})
    kubectl("create", "-f", "-", stdin=body)
    kubectl("delete", "pod", "a", "--wait=false")
    first, grace = terminating(kubectl, "a")
    assert grace == 3600
    kubectl("delete", "pod", "a", "--grace-period=60", "--wait=false")
    second, grace = terminating(kubectl, "a")
    assert ((first - second).total_seconds(), grace) == (3540, 60)
    kubectl("delete", "pod", "a", "--grace-period=600", "--wait=false")
    assert terminating(kubectl, "a") == (second, 60)


def test_delete_by_force_takes_a_pod_away_at_once(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=builders.pod("a", node="n1"))
    done = kubectl.run("delete", "pod", "a", "--force")
    assert done.returncode == 0
    assert "Immediate deletion does not wait for confirmation" in done.stderr
    assert done.stdout.startswith('pod "a" force deleted')
    assert kubectl("get", "pods", "-o", "name") == ""


def test_delete_now_gives_a_second(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=builders.pod("a", node="n1"))
    kubectl("delete", "pod", "a", "--now", "--wait=false")
    assert terminating(kubectl, "a")[1] == 1


def test_a_finalizer_keeps_even_what_is_deleted_by_force(kubectl: Kubectl) -> None:
    """behaviour C8.6"""
    body = builders.pod("a", node="n1")
    body["metadata"]["finalizers"] = ["example.com/hold"]
    kubectl("create", "-f", "-", stdin=body)
    kubectl("delete", "pod", "a", "--force", "--grace-period=0", "--wait=false")
    assert terminating(kubectl, "a")[1] == 0
    patch = '{"metadata":{"finalizers":null}}'
    kubectl("patch", "pod", "a", "--type", "merge", "-p", patch)
    assert kubectl("get", "pods", "-o", "name") == ""


def test_delete_cascades_as_it_is_told(kubectl: Kubectl) -> None:
    for name, how, want in (
        ("a", "orphan", ["orphan"]),
        ("b", "foreground", ["foregroundDeletion"]),
    ):
        kubectl("create", "-f", "-", stdin=builders.job(name))
        kubectl("delete", "job", name, f"--cascade={how}", "--wait=false")
        assert kubectl.object("get", "job", name)["metadata"]["finalizers"] == want


def test_delete_of_all_that_is_selected(kubectl: Kubectl) -> None:
    for name, labels in (("a", {"x": "1"}), ("b", {"x": "1"}), ("c", {"x": "2"})):
        kubectl("create", "-f", "-", stdin=builders.config_map(name, labels=labels))
    output = kubectl("delete", "cm", "-l", "x=1")
    assert [line.split('"')[1] for line in output.splitlines()] == ["a", "b"]
    assert kubectl("get", "cm", "-l", "x", "-o", "name") == "configmap/c\n"


def test_delete_by_dry_run_deletes_nothing(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "a")
    assert "(server dry run)" in kubectl("delete", "cm", "a", "--dry-run=server")
    assert kubectl("get", "cm", "a", "-o", "name") == "configmap/a\n"


def test_delete_of_what_is_not_there_is_refused(kubectl: Kubectl) -> None:
    error = kubectl.refused("delete", "pod", "nope")
    assert error == 'Error from server (NotFound): pods "nope" not found\n'
    assert kubectl("delete", "pod", "nope", "--ignore-not-found") == ""


def test_a_namespace_that_ends_takes_nothing_new(kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "configmap", "a")
    kubectl("delete", "namespace", namespace, "--wait=false")
    assert kubectl("get", "ns", namespace, "--no-headers").split()[1] == "Terminating"
    assert kubectl.refused("create", "configmap", "b") == (
        'error: failed to create configmap: configmaps "b" is forbidden: unable to create new '
        f"content in namespace {namespace} because it is being terminated\n"
    )


def test_a_namespace_of_the_system_is_not_deleted(kubectl: Kubectl) -> None:
    assert kubectl.refused("delete", "ns", "kube-system").endswith(
        'Error from server (Forbidden): namespaces "kube-system" is forbidden: '
        "this namespace may not be deleted\n"
    )


def test_a_pod_of_a_finished_phase_goes_at_once(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=builders.pod("a", node="n1"))
    patch_status(kubectl, "a", '{"status":{"phase":"Failed"}}')
    kubectl("delete", "pod", "a")
    assert kubectl("get", "pods", "-o", "name") == ""
