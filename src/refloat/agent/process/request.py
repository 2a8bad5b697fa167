# SPDX-License-Identifier: Apache-2.0
"""A container of a pod, as the keeper is asked to start it."""

import hashlib
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from refloat.agent.expansion import expand
from refloat.agent.keeper import mounts
from refloat.agent.process import security_context, volumes
from refloat.agent.process.images import Images
from refloat.agent.process.security_context import Machine
from refloat.agent.process.settings import ProcessSettings
from refloat.agent.process.volumes import PodFolder
from refloat.agent.runtime import StartError
from refloat.api import quantity
from refloat.api.meta import Object

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# What the API server sets where nobody says.
DEFAULT_GRACE = 30
DEFAULT_MESSAGE_PATH = "/dev/termination-log"


def container_of(pod: Object, name: str) -> Object:
    spec = pod["spec"]
    for each in (*(spec.get("initContainers") or ()), *spec["containers"]):
        if each["name"] == name:
            found: Object = each
            return found
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
    """Raises `StartError` where a process cannot be what the container is to be."""
    meta, name = pod["metadata"], container["name"]
    env = {
        "PATH": PATH,
        "HOSTNAME": pod["spec"].get("hostname") or meta["name"],
        "HOME": "/",
        **variables,
    }
    in_env = partial(expand, values=variables)
    shown = _shown(settings, folder, pod, container, attempt, in_env)
    if machine.view == mounts.NONE:
        env |= _whereabouts(shown)
    log = str(folder.log(name, attempt))
    return {
        "pod": meta["uid"],
        "container": name,
        "attempt": attempt,
        "id": container_id(mark, meta["uid"], name, attempt),
        "argv": _command(images, container, in_env),
        "env": env,
        "cwd": container.get("workingDir") or "/",
        **security_context.judge(settings.user, pod, container, machine),
        "mounts": shown,
        "scratch": str(folder.root),
        "hidden": [str(each) for each in (settings.folder, *settings.hidden)],
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
            "message": str(folder.message(name, attempt)),
            "policy": container.get("terminationMessagePolicy"),
        },
    }


def container_id(mark: str, uid: str, container: str, attempt: int) -> str:
    """The same for the same attempt, and for no other; it begins with the node's mark."""
    text = f"{uid}/{container}/{attempt}".encode()
    return mark + hashlib.sha256(text).hexdigest()[len(mark) :]


def _command(images: Images, container: Object, in_env: Callable[[str], str]) -> list[str]:
    command = container.get("command") or images.command(container.get("image", ""))
    return [in_env(each) for each in (*command, *(container.get("args") or ()))]


def _limit(container: Object, resource: str) -> int | None:
    limits = (container.get("resources") or {}).get("limits") or {}
    return quantity.int_value(limits[resource]) if resource in limits else None


def _hook(container: Object, name: str) -> list[str] | None:
    """What runs after the container has started, or before it is asked to end."""
    hook = (container.get("lifecycle") or {}).get(name) or {}
    if (execution := hook.get("exec")) is not None:
        return list(execution.get("command") or ()) or None
    if (sleep := hook.get("sleep")) is not None:
        return ["sleep", str(sleep["seconds"])]
    return None


def _shown(
    settings: ProcessSettings,
    folder: PodFolder,
    pod: Object,
    container: Object,
    attempt: int,
    in_env: Callable[[str], str],
) -> list[dict[str, Any]]:
    path = container.get("terminationMessagePath") or DEFAULT_MESSAGE_PATH
    message = {
        "source": str(folder.message(container["name"], attempt)),
        "target": os.path.normpath(path),
        "name": "",
    }
    hidden = (settings.folder, *settings.hidden)
    places = volumes.Places(shared=settings.shared, hidden=hidden)
    return [*volumes.mounts(folder, pod, container, in_env, places), message]


def _whereabouts(shown: list[dict[str, Any]]) -> dict[str, str]:
    """Where nothing can be mounted, a container is told where its volumes are."""
    made = {}
    for each in shown:
        name = each["name"].upper().replace("-", "_")
        variable = f"REFLOAT_VOLUME_{name}" if name else "REFLOAT_TERMINATION_LOG"
        made[variable] = f"{each['source']}/{each.get('inner', '')}".rstrip("/")
    return made
