# SPDX-License-Identifier: Apache-2.0
"""What users of kubectl expect of a command line."""

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cases import cases
from tests.e2e import cluster
from tests.e2e.cluster import Api


def create_pod(api: Api, namespace: str, name: str) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    api.create(f"/api/v1/namespaces/{namespace}/pods", pod)


@pytest.fixture
def pods(api: Api, namespace: str) -> str:
    """A namespace with the pods a and b."""
    for name in ("a", "b"):
        create_pod(api, namespace, name)
    return namespace


@pytest.mark.parametrize("what", [("pod/a", "pod/b"), ("pod", "a", "b"), ("po/a", "pods/b")])
def test_pods_are_deleted_in_the_words_of_kubectl(
    kubeconfig: Path, pods: str, what: tuple[str, ...]
) -> None:
    flags = ("-n", pods, "--reason", "Mine", "--kubeconfig", kubeconfig)
    done = cluster.run("delete", *what, *flags)
    assert (done.stdout, done.stderr) == ("pod a deleted: Mine\npod b deleted: Mine\n", "")


def test_a_missing_pod_does_not_keep_the_others(kubeconfig: Path, pods: str) -> None:
    flags = ("-n", pods, "--reason", "Mine", "--kubeconfig", kubeconfig)
    done = cluster.run("delete", "pod", "a", "none", "b", *flags)
    assert done.stdout == "pod a deleted: Mine\npod b deleted: Mine\n"
    assert (done.returncode, done.stderr) == (1, 'refloat: pods "none" not found\n')


def completions(line: str, kubeconfig: Path) -> list[str]:
    """What bash gets for the last word of the line."""
    words = line.split(" ")
    environ = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig),
        "_REFLOAT_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    done = subprocess.run([cluster.REFLOAT], env=environ, capture_output=True, text=True)
    assert done.stderr == ""
    return [each.partition(",")[2] for each in done.stdout.split("\n") if each]


@cases(
    "words want",
    {
        "pods": ("explain -n {} pod/", ["pod/a", "pod/b"]),
        "a short kind": ("explain -n {} po/a", ["pod/a"]),
        "names after a kind": ("explain -n {} pod ", ["a", "b"]),
        "Jobs": ("explain -n {} job", ["job/train"]),
        "all kinds": ("explain -n {} ", ["job/train", "pod/a", "pod/b"]),
        "pods to delete": ("delete -n {} ", ["pod/a", "pod/b"]),
        "a pod to delete": ("delete -n {} pod b", ["b"]),
        "nothing begins so": ("explain -n {} pod/none", []),
    },
)
def test_a_shell_completes_names_of_the_cluster(
    api: Api, kubeconfig: Path, pods: str, words: str, want: list[str]
) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}}
    path = f"/apis/batch/v1/namespaces/{pods}/jobs"
    api.create(path, {**job, "spec": {"suspend": True, "template": template}})
    assert completions(f"refloat {words.format(pods)}", kubeconfig) == want


@cases(
    "words want",
    {
        "a name": ("TaintF", ["TaintForceEviction=true", "TaintForceEviction=false"]),
        "right after the sign": ("TaintForceEviction =", ["true", "false"]),
        "a value": ("TaintForceEviction = t", ["true"]),
        "a second name": (
            "A = true,TaintForceEv",
            ["true,TaintForceEviction=true", "true,TaintForceEviction=false"],
        ),
        "a second value": ("A = true,TaintForceEviction = f", ["false"]),
    },
)
@pytest.mark.parametrize("option", ["--feature-gates ", "--feature-gates = "])
def test_bash_completes_gates_although_it_splits_words_at_the_sign(
    tmp_path: Path, option: str, words: str, want: list[str]
) -> None:
    assert completions(f"refloat up {option}{words}", tmp_path) == want


def test_a_server_that_does_not_answer_costs_a_completion_two_seconds(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        file.write_text(
            f"clusters: [{{name: c, cluster: {{server: '{url}'}}}}]\ncurrent-context: c\n"
            "contexts: [{name: c, context: {cluster: c}}]\n"
        )
        assert completions("refloat explain job/", file) == []


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Path]:
    """The kubeconfig of a cluster with two simulated nodes."""
    with cluster.serving(tmp_path / "data", "--simulated-nodes", "2") as server:
        yield server.kubeconfig


def test_node_commands_find_the_cluster_of_the_kubeconfig(embedded: Path) -> None:
    environ = {**os.environ, "KUBECONFIG": str(embedded), "HOME": "/nonexistent"}
    command = [str(cluster.REFLOAT), "node", "freeze", "node-1"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert done.stdout.startswith("node node-1 is silent"), done.stderr


def test_a_shell_completes_the_nodes_of_the_cluster(embedded: Path) -> None:
    assert completions("refloat node heal node-1", embedded) == ["node-1"]
    assert completions("refloat explain node/", embedded) == ["node/node-0", "node/node-1"]


def node_states(api: Api) -> dict[str, str]:
    """The status of the condition Ready of each node, read once."""
    return {
        node["metadata"]["name"]: condition["status"]
        for node in api.get("/api/v1/nodes")["items"]
        for condition in node["status"]["conditions"]
        if condition["type"] == "Ready"
    }


@cases(
    "flags want",
    {
        "processes": (("--nodes", "2"), {"n1": "True", "n2": "True"}),
        "simulated": (("--simulated-nodes", "2"), {"node-0": "True", "node-1": "True"}),
    },
)
def test_up_announces_a_cluster_whose_nodes_are_ready(
    folder: Path, flags: tuple[str, ...], want: dict[str, str]
) -> None:
    for _ in range(2):  # the second time the store has the nodes already
        with cluster.serving(folder, "--controllers", "*", *flags) as server:
            assert node_states(Api(server.kubeconfig)) == want
            assert server.end() == 0
