# SPDX-License-Identifier: Apache-2.0
"""Agents as nodes of Kubernetes, and pods and Jobs that are meant for them.

A node has a certificate for `system:node:NAME` in the group `system:nodes`, and
the rights that the Node authorizer and NodeRestriction leave a kubelet. The pods
here name the nodes and tolerate their taint; the cluster has others too.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from refloat.app import certificates, private_files
from tests.e2e import agents
from tests.e2e.agents import AgentProcess
from tests.e2e.cluster import Api, Kubectl
from tests.e2e.node_cluster import until, wait

TAINT = "refloat.dev/process-runtime"
HOST = "kubernetes.io/hostname"
UNREACHABLE = "node.kubernetes.io/unreachable"

# A busy machine with two cores; nothing waits this long when all is well.
PATIENCE_SECONDS = 300.0

# What every pod of a namespace waits for, beside a node.
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
    private_files.write(path, json.dumps(document).encode())
    return path


@contextlib.contextmanager
def joined(admin: Path, folder: Path, name: str, *flags: str) -> Iterator[AgentProcess]:
    """A node until the end of the block; nothing of the node outlives the block."""
    access = kubeconfig(admin, Path(os.environ["REFLOAT_TEST_AUTHORITY"]), name)
    # Beats each second: a machine that is busy for some seconds must not lose a node.
    with agents.running(folder / "data", access, name, "--fast", *flags) as agent:
        yield agent
    Api(admin).ask("DELETE", f"/api/v1/nodes/{name}")


def prepare(api: Api, namespace: str) -> None:
    """Make a namespace, and wait until Kubernetes has prepared it for pods."""
    api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    for each in _NEEDED:
        until(api, f"/api/v1/namespaces/{namespace}/{each}", lambda _: True)


@dataclass(frozen=True)
class Place:
    """A namespace, and the nodes that the pods may run on."""

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
        """Make the namespace, and wait until Kubernetes has prepared it for pods."""
        prepare(self.api, self.kubectl.namespace)

    def until(self, path: str, holds: Callable[[Object], Any]) -> Object:
        return until(self.api, path, holds)

    def until_gone(self, path: str) -> None:
        wait(lambda: self.api.ask("GET", path).status == 404, f"{path} is still there")

    def pod(self, name: str, phase: str) -> Object:
        """A pod, in this phase."""
        return self.until(f"{self.pods}/{name}", lambda each: each["status"].get("phase") == phase)

    def pods_of(self, job: str) -> list[Object]:
        answer = self.api.get(f"{self.pods}?labelSelector=batch.kubernetes.io/job-name={job}")
        items: list[Object] = answer["items"]
        return items

    def over(self, job: str) -> tuple[Object, Object]:
        """The status of a finished Job, and the condition of the end."""
        status = self.until(f"{self.jobs}/{job}", lambda each: _end(each) is not None)["status"]
        end = _end({"status": status})
        assert end is not None
        return status, end

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
        """Have a Job run a script in the pods."""
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
        main: Object = {"name": "main", "image": "busybox", "command": ["sh", "-c", script]}
        volumes = []
        if host is not None:
            host.chmod(0o777)  # containers run as another user
            main["volumeMounts"] = [{"name": "host", "mountPath": "/host"}]
            volumes.append({"name": "host", "hostPath": {"path": str(host)}})
        return {
            "restartPolicy": "Never",
            "containers": [{**main, **(container or {})}],
            "volumes": volumes,
            "tolerations": [{"key": TAINT, "operator": "Exists"}],
            "affinity": on(nodes or self.nodes),
            **spec,
        }


def on(nodes: list[str]) -> Object:
    """An affinity for nodes of these names."""
    requirement = {"key": HOST, "operator": "In", "values": nodes}
    terms = [{"matchExpressions": [requirement]}]
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
        }
    }


def _end(job: Object) -> Object | None:
    for each in job["status"].get("conditions") or ():
        if each["type"] in ("Complete", "Failed") and each["status"] == "True":
            entry: Object = each
            return entry
    return None


def condition(obj: Object, kind: str) -> Object:
    """A condition of an object; empty without one of this type."""
    for each in obj["status"].get("conditions") or ():
        if each["type"] == kind:
            entry: Object = each
            return entry
    return {}


def taints(node: Object) -> set[tuple[str, str]]:
    """Keys and effects."""
    return {(each["key"], each["effect"]) for each in node["spec"].get("taints") or ()}


def terminated(pod: Object) -> Object:
    """The terminated state of the one container of a pod; empty before the end."""
    for status in pod["status"].get("containerStatuses") or ():
        state: Object = status.get("state", {}).get("terminated") or {}
        return state
    return {}


def is_alive(pid: int) -> bool:
    """Does a process of this machine run?"""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
