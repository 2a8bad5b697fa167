# SPDX-License-Identifier: Apache-2.0
"""Builds the keeper's start request for a container of a pod."""

import hashlib
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from refloat.agent.keeper import mounts
from refloat.agent.process import security_context, volumes
from refloat.agent.process.images import Images
from refloat.agent.process.security_context import Machine
from refloat.agent.process.settings import ProcessSettings
from refloat.agent.process.volumes import PodFolder
from refloat.agent.runtime import StartError
from refloat.agent.variable_expansion import expand
from refloat.api import quantity
from refloat.api.meta import Object

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# The API server's defaults.
DEFAULT_GRACE = 30
DEFAULT_MESSAGE_PATH = "/dev/termination-log"


def container_of(pod: Object, name: str) -> Object:
    spec = pod["spec"]
    for each in (*(spec.get("initContainers") or ()), *spec["containers"]):
        if each["name"] == name:
            container: Object = each
            return container
    raise StartError(f"pod {pod['metadata']['name']} has no container {name}")


def build(
    settings: ProcessSettings,
    images: Images,
    pod: Object,
    container: Object,
    attempt: int,
    variables: Mapping[str, str],
    folder: PodFolder,
    *,
    mark: str,
    machine: Machine,
) -> dict[str, Any]:
    """Raises `StartError` if this runtime cannot run the container."""
    meta, name = pod["metadata"], container["name"]
    hostname = pod["spec"].get("hostname") or meta["name"]
    env = {"PATH": PATH, "HOSTNAME": hostname, "HOME": "/", **variables}
    in_env = partial(expand, values=variables)
    hidden = (settings.folder, *settings.hidden)
    places = volumes.Places(shared=settings.shared, hidden=hidden)
    log, message = str(folder.log(name, attempt)), str(folder.message(name, attempt))
    message_path = container.get("terminationMessagePath") or DEFAULT_MESSAGE_PATH
    mounted = [
        *volumes.mounts(folder, pod, container, in_env, places),
        {"source": message, "target": os.path.normpath(message_path), "name": ""},
    ]
    if machine.view == mounts.NONE:
        # Without mounts, variables name the folders of the volumes.
        for each in mounted:
            volume = each["name"].upper().replace("-", "_")
            variable = f"REFLOAT_VOLUME_{volume}" if volume else "REFLOAT_TERMINATION_LOG"
            env[variable] = f"{each['source']}/{each.get('inner', '')}".rstrip("/")
    return {
        "pod": meta["uid"],
        "container": name,
        "attempt": attempt,
        "id": container_id(mark, meta["uid"], name, attempt),
        "argv": _command(images, container, in_env),
        "env": env,
        "cwd": container.get("workingDir") or "/",
        **security_context.resolve(settings.user, pod, container, machine),
        "mounts": mounted,
        "scratch": str(folder.root),
        "hidden": [str(each) for each in hidden],
        "memory": _limit(container, "memory"),
        "pids": settings.max_pids,
        "log": log,
        "log_bytes": settings.log_bytes,
        "log_files": settings.log_files,
        "hook": _hook(container, "preStop"),
        "post_start": _hook(container, "postStart"),
        "grace": max(1, pod["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE)),
        "stop_signal": (container.get("lifecycle") or {}).get("stopSignal"),
        "memo": {
            "log": log,
            "message": message,
            "policy": container.get("terminationMessagePolicy"),
        },
    }


def container_id(mark: str, uid: str, container: str, attempt: int) -> str:
    """A hash of the attempt after the node's mark: each attempt has one id."""
    text = f"{uid}/{container}/{attempt}".encode()
    return mark + hashlib.sha256(text).hexdigest()[len(mark) :]


def _command(images: Images, container: Object, in_env: Callable[[str], str]) -> list[str]:
    command = container.get("command") or images.command(container.get("image", ""))
    return [in_env(each) for each in (*command, *(container.get("args") or ()))]


def _limit(container: Object, resource: str) -> int | None:
    limits = (container.get("resources") or {}).get("limits") or {}
    return quantity.int_value(limits[resource]) if resource in limits else None


def _hook(container: Object, name: str) -> list[str] | None:
    """The command of the postStart or preStop hook."""
    hook = (container.get("lifecycle") or {}).get(name) or {}
    if (execution := hook.get("exec")) is not None:
        return list(execution.get("command") or ()) or None
    if (sleep := hook.get("sleep")) is not None:
        return ["sleep", str(sleep["seconds"])]
    return None
