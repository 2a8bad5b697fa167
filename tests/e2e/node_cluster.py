# SPDX-License-Identifier: Apache-2.0
"""Nodes of real processes: their objects, their pods and their processes."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.e2e import cluster
from tests.e2e.cluster import PATIENCE_SECONDS, Api, Object, ServerProcess

T = TypeVar("T")

NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
TAINT = "refloat.dev/process-runtime"


def shell(script: str, **more: Any) -> Object:
    return {"name": "main", "image": "busybox", "command": ["sh", "-c", script], **more}


def pod(name: str, script: str, *, container: Object | None = None, **spec: Any) -> Object:
    main = {**shell(script), **(container or {})}
    pod_spec = {"restartPolicy": "Never", "containers": [main], **spec}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name}, "spec": pod_spec}


def phase(name: str) -> Callable[[Object], bool]:
    return lambda each: each["status"].get("phase") == name


def is_ready(node: Object) -> bool:
    conditions = node["status"].get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def until(
    api: Api, path: str, holds: Callable[[Object], Any], seconds: float = PATIENCE_SECONDS
) -> Object:
    """The object, once it satisfies the condition."""
    deadline = time.monotonic() + seconds
    while True:
        obj = api.ask("GET", path).object
        if obj.get("kind") != "Status" and holds(obj):
            return obj
        assert time.monotonic() < deadline, obj
        time.sleep(0.05)


def wait(holds: Callable[[], T], what: str) -> T:
    """The value, once there is one."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (value := holds()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return value


def processes(folder: Path) -> dict[int, str]:
    """Agents and keepers of a data directory, by pid."""
    commands = {}
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                command = (each / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue  # the process has just ended
            if f"{folder}/nodes/" in command:
                commands[int(each.name)] = command
    return commands


def agent_of(folder: Path, name: str) -> int:
    flag = f"--name {name} "
    return next((pid for pid, each in processes(folder).items() if flag in each), 0)


@contextmanager
def up(folder: Path, nodes: int = 1, *flags: str) -> Iterator[ServerProcess]:
    """A cluster whose nodes are ready."""
    with cluster.serving(folder, "--controllers", "*", "--nodes", str(nodes), *flags) as server:
        api = Api(server.kubeconfig)
        for number in range(1, nodes + 1):
            until(api, f"{NODES}/n{number}", is_ready)
        yield server
