# SPDX-License-Identifier: Apache-2.0
"""`refloat explain`, as a user runs the command."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import builders
from tests.e2e import cluster
from tests.e2e.cluster import Api

UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
OPTED_IN = {"kueue.x-k8s.io/safe-to-forcefully-terminate": "true"}


@pytest.fixture
def node(api: Api, namespace: str) -> Iterator[str]:
    """A lost node, with a pod `stuck` whose deletion has begun."""
    manifest = builders.node(namespace)
    manifest["spec"] = {**manifest.get("spec", {}), "taints": [UNREACHABLE]}
    api.create("/api/v1/nodes", manifest)
    pod = builders.pod("stuck", node=namespace)
    pod["metadata"]["annotations"] = OPTED_IN
    path = f"/api/v1/namespaces/{namespace}/pods"
    api.create(path, pod)
    api.ask("DELETE", f"{path}/stuck")
    yield namespace
    api.ask("DELETE", f"/api/v1/nodes/{namespace}")


def explain(kubeconfig: Path, *args: str) -> str:
    done = cluster.run("explain", "--kubeconfig", str(kubeconfig), *args)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_stuck_pod_is_explained(kubeconfig: Path, node: str) -> None:
    output = explain(kubeconfig, "pod/stuck", "-n", node)
    assert output.startswith(f"pod {node}/stuck: Waiting/Terminating")
    assert "with a grace period of 30 s" in " ".join(output.split())
    assert all(len(line) <= 80 or line.startswith("    kubectl") for line in output.splitlines())


def test_a_node_is_explained_for_programs_too(kubeconfig: Path, node: str) -> None:
    report = json.loads(explain(kubeconfig, f"node/{node}", "-o", "json"))
    assert report["object"] == {"kind": "Node", "name": node}
    assert {"source": "pods", "text": "1 Terminating"} in report["evidence"]
    yaml = explain(kubeconfig, f"no/{node}", "-o", "yaml")
    assert yaml.startswith("apiVersion: explain.refloat.dev/v1\n")


def test_what_is_not_there_is_said_in_one_line(kubeconfig: Path, namespace: str) -> None:
    done = cluster.run("explain", "--kubeconfig", str(kubeconfig), "pod/nobody", "-n", namespace)
    assert (done.returncode, done.stderr) == (1, 'refloat: pods "nobody" not found\n')


def test_of_several_objects_one_that_is_missing_hides_no_other(kubeconfig: Path, node: str) -> None:
    subjects = ("pod/nobody", "pod/stuck", "pod/none")
    done = cluster.run("explain", "--kubeconfig", str(kubeconfig), *subjects, "-n", node)
    assert done.returncode == 1
    assert done.stdout.startswith(f"pod {node}/stuck: ")
    assert done.stderr == 'refloat: pods "nobody" not found\nrefloat: pods "none" not found\n'


def test_what_cannot_be_explained_is_wrong_use(kubeconfig: Path) -> None:
    done = cluster.run("explain", "--kubeconfig", str(kubeconfig), "lease/x")
    assert done.returncode == 2
    assert "expected job/NAME, pod/NAME, node/NAME or cronjob/NAME" in done.stderr


def test_doctor_finds_the_lost_node_and_says_that_a_person_must_act(
    api: Api, kubeconfig: Path, node: str
) -> None:
    ready = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
    api.patch(f"/api/v1/nodes/{node}/status", {"status": {"conditions": [ready]}})
    done = cluster.run("doctor", "--kubeconfig", str(kubeconfig))
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("A person must act.")
    assert f"pod {node}/stuck: Waiting/TerminatingPodOnLostNode" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


def test_doctor_reports_for_programs(kubeconfig: Path, namespace: str) -> None:
    done = cluster.run("doctor", "--kubeconfig", str(kubeconfig), "-n", namespace, "-o", "json")
    report = json.loads(done.stdout)
    assert (report["kind"], report["needsPerson"], report["jobs"]) == ("Report", False, [])
    assert done.returncode == 0
