# SPDX-License-Identifier: Apache-2.0
"""On a cluster: `refloat explain` names situations that Kubernetes' own components create.

Jobs, scheduling, admission, quota, taints and deletion are Kubernetes' own. Real processes run on
agents that are nodes, and one node of another agent falls silent. An administrator is told code and
words; a user with the role `view` in the namespace alone is told the same code. pytest does not
collect this module: `python -m tests.kubernetes` starts the cluster and runs it.
"""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from refloat.app import private_files
from refloat.explain.codes import Code
from tests.e2e import node_cluster
from tests.e2e.cluster import REFLOAT, Api, ApiAnswer
from tests.e2e.situations import (
    ends,
    evictions,
    lost_nodes,
    pending,
    play,
    refused,
    running,
    steps,
)
from tests.e2e.situations.steps import SAFE, Playground
from tests.kubernetes import joining

LOST_NODE, LIVING = "explain-0", "explain-living-0"
ON_LOST = ("no-opt-in", "recovered", "node-lost")

# The embedded cluster's own: its process shuts the node down, its scheduler waits for nothing,
# its back-off is short; and recovery on Kubernetes frees the pod within seconds.
NOT_HERE = frozenset(
    (
        *("node-shutdown", "back-off", "ignore-loop", "opted-in", "pod-removed", "node-pressure"),
        *("multi-attach", "claim-missing", "claim-unbound"),
    )
)

ALL = (
    *pending.NOT_STARTED,
    *refused.REFUSED,
    *pending.PENDING,
    *running.RUNNING,
    *running.HELD,
    *ends.ENDS,
    *evictions.EVICTIONS,
    *lost_nodes.situations(LOST_NODE, LIVING, on_lost=ON_LOST, soon={"annotations": SAFE}),
)
# What is left of pods that are gone: Kubernetes' own controller keeps no record, so events.
WORDS = {
    "deadline": ("(2 s)", "deleted by the Job controller", "pod is gone"),
    "drained": ("deleted; no event says by whom", "1 failure counted"),
}
SITUATIONS = tuple(
    replace(each, words=WORDS.get(each.name, each.words))
    for each in ALL
    if each.name not in NOT_HERE
)

pytestmark = pytest.mark.timeout(600)


@dataclass
class NamespacedApi(Api):
    """Puts what situations create into a namespace of their own, instead of `default`."""

    namespace: str = "default"

    def ask(self, method: str, path: str, body: object = None, **how: Any) -> ApiAnswer:
        own = path.replace("/namespaces/default/", f"/namespaces/{self.namespace}/")
        return super().ask(method, own, body, **how)


@dataclass
class TwoReaders(Playground):
    """Notes what a user with the role `view` is told, beside what the administrator is told."""

    namespace: str = "default"
    reader: Path = Path()
    told: dict[str, str] = field(default_factory=dict)

    def explain(self, *subjects: str) -> str:
        about = ("-n", self.namespace, *subjects)
        nodes = [each for each in subjects if each.startswith("node/")]
        rest = [each for each in subjects if each not in nodes]
        if rest:
            narrow = Playground(self.reader, self.api)
            self.told |= play.split(narrow.explain("-n", self.namespace, *rest))
        return super().explain(*about)


def reader(admin: Path, api: Api, namespace: str, folder: Path) -> Path:
    """The kubeconfig of a service account with the role `view` in the namespace."""
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    api.create(rbac, {"metadata": {"name": "view"}, "roleRef": role, "subjects": [subject]})
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    token = api.create(f"{account}/token", {"spec": {"expirationSeconds": 3600}})["status"]["token"]
    document = yaml.safe_load(admin.read_text())
    document["users"][0]["user"] = {"token": token}
    path = folder / "reader.kubeconfig"
    private_files.write(path, json.dumps(document).encode())
    return path


@contextlib.contextmanager
def simulated(admin: Path, log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Two simulated nodes in two processes' place: the agent of the first can be stopped."""
    command = [str(REFLOAT), "agent", "--kubeconfig", str(admin), "--simulated-nodes", "1"]
    with log.open("a") as output, ExitStack() as stack:
        agents = []
        for name in ("explain", "explain-living"):
            agent = subprocess.Popen([*command, "--name", name], stdout=output, stderr=output)
            stack.callback(Api(admin).ask, "DELETE", f"{node_cluster.NODES}/{name}-0")
            stack.callback(agent.wait)
            stack.callback(agent.kill)
            agents.append(agent)
        yield agents[0]


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[TwoReaders]:
    tmp_path.chmod(0o755)
    admin, name = Path(os.environ["REFLOAT_TEST_KUBECONFIG"]), f"explain-{os.getpid()}"
    api = NamespacedApi(admin, namespace=name)
    images = tmp_path / "images.json"
    images.write_text(json.dumps(play.IMAGES))
    flags = {"images": ("--images", str(images))}
    with ExitStack() as stack:
        for node in ("n1", "n2", "images", "low"):
            more = ("--accept-all-pods", *flags.get(node, ()))
            stack.enter_context(joining.joined(admin, tmp_path, node, *more))
        silent = stack.enter_context(simulated(admin, tmp_path / "simulated.log"))
        for node in ("n1", "n2", "images", "low", LOST_NODE, LIVING):
            node_cluster.until(api, f"{node_cluster.NODES}/{node}", node_cluster.is_ready)
        stack.callback(clear, api)
        clear(api)
        joining.prepare(api, name)
        refused.prepare(api, name)
        told = reader(admin, api, name, tmp_path)
        yield TwoReaders(
            admin,
            api,
            fail=lambda verb, node: silent.send_signal(signal.SIGSTOP),
            namespace=name,
            reader=told,
        )


def clear(api: NamespacedApi) -> None:
    """Delete what the situations left, held pods too."""
    refused.clear(api)
    for each in (manifest for situation in SITUATIONS for manifest in situation.manifests):
        path = steps.PATHS[each["kind"]]
        if "/namespaces/" not in path:
            api.ask("DELETE", f"{path}/{each['metadata']['name']}")
    for path in (steps.PODS, steps.JOBS):
        for each in api.get(path)["items"]:
            if each["metadata"].get("finalizers"):
                name = each["metadata"]["name"]
                api.ask(
                    "PATCH",
                    f"{path}/{name}",
                    {"metadata": {"finalizers": None}},
                    content_type="application/merge-patch+json",
                )
    api.ask("DELETE", f"/api/v1/namespaces/{api.namespace}")


def test_explain_names_each_situation_for_administrators_and_for_readers(
    ground: TwoReaders,
) -> None:
    answers = play.play(ground, SITUATIONS, within=100)
    wrong = play.mistakes(SITUATIONS, answers)
    for each in SITUATIONS:
        if each.kind != "node" and f": {each.code}\n" not in ground.told[each.name]:
            wrong.append(f"{each.name}: a reader is not told {each.code}\n{ground.told[each.name]}")
    assert not wrong, "\n".join(wrong)


def test_more_than_forty_situations_are_created() -> None:
    assert len(SITUATIONS) > 40
    assert len({each.code for each in SITUATIONS}) > 30
    assert Code.QUOTA in {each.code for each in SITUATIONS}
