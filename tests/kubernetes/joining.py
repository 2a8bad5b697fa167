# SPDX-License-Identifier: Apache-2.0
"""Agents as nodes of Kubernetes, and pods and Jobs that are meant for them.

A node has a certificate for `system:node:NAME` in the group `system:nodes`, and
with it what the Node authorizer and NodeRestriction leave a kubelet. The pods
here name the nodes and tolerate their taint; the cluster has others too.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from refloat.app import certificates, files
from tests.e2e import agents
from tests.e2e.agents import Agent
from tests.e2e.cluster import Api, Kubectl

TAINT = "refloat.dev/process-runtime"
HOST = "kubernetes.io/hostname"
UNREACHABLE = "node.kubernetes.io/unreachable"

# A busy machine with two cores; nothing waits this long when all is well.
PATIENCE_SECONDS = 90.0

# What every pod of a namespace waits for, beside its node.
_NEEDED = ("serviceaccounts/default", "configmaps/kube-root-ca.crt")

Object = dict[str, Any]


def kubeconfig(admin: Path, authority: Path, name: str) -> Path:
    """The administrator's kubeconfig, with who the node is instead."""
    user = f"system:node:{name}"
    certificate, key = certificates.ensure_client(
        authority, datetime.now(UTC), user=user, group="system:nodes"
    )
    document = yaml.safe_load(admin.read_text())
    document["users"][0]["user"] = {
        "client-certificate": str(certificate),
        "client-key": str(key),
    }
    path = authority.with_name(f"{name}.kubeconfig")
    files.write(path, json.dumps(document).encode())
    return path


@contextlib.contextmanager
def joined(admin: Path, folder: Path, name: str) -> Iterator[Agent]:
    """A node of the cluster until the block ends, and nothing of it after that."""
    access = kubeconfig(admin, Path(os.environ["REFLOAT_TEST_AUTHORITY"]), name)
    # Beats each second: a machine that is busy for some seconds must not lose a node.
    with agents.running(folder / "data", access, name, "--fast") as agent:
        yield agent
    Api(admin).ask("DELETE", f"/api/v1/nodes/{name}")


@dataclass(frozen=True)
class Place:
    """A namespace, and the nodes that its pods may run on."""

    api: Api
    kubectl: Kubectl
    nodes: list[str] = field(default_factory=list)

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.kubectl.namespace}/pods"

    @property
    def jobs(self) -> str:
        return f"/apis/batch/v1/namespaces/{self.kubectl.namespace}/jobs"

    def prepare(self) -> None:
        """Make the namespace, and wait until Kubernetes has what pods in it need."""
        name = self.kubectl.namespace
        self.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
        for each in _NEEDED:
            self.until(f"/api/v1/namespaces/{name}/{each}", lambda _: True)

    def until(self, path: str, holds: Callable[[Object], Any]) -> Object:
        """The object, once something is so of it."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = self.api.ask("GET", path).object
            if found.get("kind") != "Status" and holds(found):
                return found
            assert time.monotonic() < deadline, found
            time.sleep(0.1)

    def until_gone(self, path: str) -> None:
        wait_for(lambda: self.api.ask("GET", path).status == 404, f"{path} is still there")

    def pod(self, name: str, phase: str) -> Object:
        """A pod, once it is in this phase."""
        return self.until(f"{self.pods}/{name}", lambda each: each["status"].get("phase") == phase)

    def pods_of(self, job: str) -> list[Object]:
        found = self.api.get(f"{self.pods}?labelSelector=batch.kubernetes.io/job-name={job}")
        items: list[Object] = found["items"]
        return items

    def over(self, job: str) -> tuple[Object, Object]:
        """The status of a Job once it is over, and the condition that says so."""
        found = self.until(f"{self.jobs}/{job}", lambda each: _end(each) is not None)["status"]
        end = _end({"status": found})
        assert end is not None
        return found, end

    def run(self, name: str, script: str, *, host: Path | None = None, **spec: Any) -> Object:
        """Have a pod run a script."""
        template = self.template(script, host=host, **spec)
        return self.api.create(self.pods, {"metadata": {"name": name}, "spec": template})

    def submit(
        self,
        name: str,
        script: str,
        *,
        managed_by: str = "",
        host: Path | None = None,
        container: Object | None = None,
        pod: Object | None = None,
        annotations: dict[str, str] | None = None,
        **spec: Any,
    ) -> None:
        """Have a Job run a script in its pods."""
        template = self.template(script, host=host, container=container, **(pod or {}))
        spec["template"] = {"metadata": {"annotations": annotations or {}}, "spec": template}
        if managed_by:
            spec["managedBy"] = managed_by
        self.api.create(self.jobs, {"metadata": {"name": name}, "spec": spec})

    def template(
        self,
        script: str,
        *,
        host: Path | None = None,
        container: Object | None = None,
        nodes: list[str] | None = None,
        **spec: Any,
    ) -> Object:
        """A pod's spec: for the nodes, with a folder of this machine at /host."""
        made: Object = {"name": "main", "image": "busybox", "command": ["sh", "-c", script]}
        volumes = []
        if host is not None:
            host.chmod(0o777)  # containers run as nobody
            made["volumeMounts"] = [{"name": "host", "mountPath": "/host"}]
            volumes.append({"name": "host", "hostPath": {"path": str(host)}})
        return {
            "restartPolicy": "Never",
            "containers": [{**made, **(container or {})}],
            "volumes": volumes,
            "tolerations": [{"key": TAINT, "operator": "Exists"}],
            "affinity": on(nodes or self.nodes),
            **spec,
        }


def on(nodes: list[str]) -> Object:
    """An affinity for nodes of these names."""
    wanted = {"key": HOST, "operator": "In", "values": nodes}
    terms = [{"matchExpressions": [wanted]}]
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
        }
    }


def _end(job: Object) -> Object | None:
    for each in job["status"].get("conditions") or ():
        if each["type"] in ("Complete", "Failed") and each["status"] == "True":
            found: Object = each
            return found
    return None


def condition(obj: Object, kind: str) -> Object:
    """A condition of an object; empty if it has none of this type."""
    for each in obj["status"].get("conditions") or ():
        if each["type"] == kind:
            found: Object = each
            return found
    return {}


def taints(node: Object) -> set[tuple[str, str]]:
    """Keys and effects."""
    return {(each["key"], each["effect"]) for each in node["spec"].get("taints") or ()}


def terminated(pod: Object) -> Object:
    """How the one container of a pod ended; empty if it has not."""
    for status in pod["status"].get("containerStatuses") or ():
        found: Object = status.get("state", {}).get("terminated") or {}
        return found
    return {}


def is_alive(pid: int) -> bool:
    """Does a process of this machine run?"""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for(holds: Callable[[], object], otherwise: str) -> None:
    """Until something is so."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.1)
