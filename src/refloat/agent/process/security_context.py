# SPDX-License-Identifier: Apache-2.0
"""The security context of a container: each field is honoured, or the container is refused.

A process has less around it than a container: no image, no user namespace of the pod's,
and the machine's own processes beside it. What a field asks for and a process cannot
have is a reason to wait with `CreateContainerConfigError`, as for a kubelet. It is never
ignored. What every container has, whatever it asks for: no way to gain rights
(NoNewPrivs) and no capability.

Pure: the facts of the machine are given.
"""

import grp
import os
import pwd
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from refloat.agent.keeper import mounts, specs
from refloat.agent.process.settings import User
from refloat.agent.runtime import StartError
from refloat.api.meta import Object

REASON = "CreateContainerConfigError"

# These a container sets for itself, and else takes from its pod.
_SHARED = (
    "runAsUser",
    "runAsGroup",
    "runAsNonRoot",
    "seccompProfile",
    "seLinuxOptions",
    "appArmorProfile",
    "windowsOptions",
)


def _is_known_group(gid: int) -> bool:
    try:
        grp.getgrgid(gid)
    except (KeyError, OverflowError):
        return False
    return True


def _primary_group(uid: int) -> int | None:
    try:
        return pwd.getpwuid(uid).pw_gid
    except (KeyError, OverflowError):
        return None


@dataclass(frozen=True, slots=True)
class Machine:
    """What this machine allows, and who the agent is."""

    view: str = mounts.NAMESPACE
    """Which namespace the keeper can make."""

    read_only_root: bool = True
    seccomp: bool = True
    uid: int = field(default_factory=os.geteuid)
    gid: int = field(default_factory=os.getegid)
    groups: Callable[[], Iterable[int]] = os.getgroups
    is_known_group: Callable[[int], bool] = _is_known_group
    """Whether the machine has a name for a group: some of these are as good as root."""

    primary_group: Callable[[int], int | None] = _primary_group
    """The group of a user of the machine."""

    @classmethod
    def of(cls, allows: dict[str, Any]) -> "Machine":
        """From what the keeper says; raises `StartError` if it is of another version.

        An older one would ignore what it does not know, such as which part of a volume is meant.
        """
        protocol = allows.get("protocol", 1)
        if protocol != specs.PROTOCOL:
            pid = allows.get("pid")
            raise StartError(
                f"the keeper of this node (process {pid}) is of another version of Refloat: it has "
                f"protocol {protocol}, the agent has {specs.PROTOCOL}. What runs goes on, and "
                f"nothing can start. Drain the node, then `kill {pid}` on its machine: that ends "
                "the keeper and what is left of its containers, and the agent starts a new keeper"
            )
        return cls(
            view=allows["mounts"],
            read_only_root=allows["read_only_root"],
            seccomp=allows["seccomp"],
        )


def judge(user: User | None, pod: Object, container: Object, machine: Machine) -> dict[str, Any]:
    """What the keeper is asked for; raises `StartError` for what cannot be honoured.

    `user` is who containers run as that do not say; None: the agent's own user.
    """
    spec = pod["spec"]
    of_pod = spec.get("securityContext") or {}
    own = container.get("securityContext") or {}
    asked = {name: own.get(name, of_pod.get(name)) for name in _SHARED} | {
        name: value for name, value in own.items() if name not in _SHARED
    }
    for why in (*_of_pod(spec, of_pod), *_of_container(asked), *_of_machine(asked, machine)):
        raise StartError(why, reason=REASON)
    groups = [*(of_pod.get("supplementalGroups") or ())]
    if of_pod.get("fsGroup") is not None:
        groups.append(of_pod["fsGroup"])
    return {
        "user": _identity(user, asked, groups, machine),
        "read_only_root": bool(asked.get("readOnlyRootFilesystem")),
        "seccomp": (asked["seccompProfile"] or {}).get("type") == "RuntimeDefault",
    }


def _of_pod(spec: Object, asked: Object) -> Iterator[str]:
    if spec.get("hostUsers") is False:
        yield "hostUsers: false: a process has no user namespace of its pod's"
    if asked.get("sysctls"):
        yield "sysctls: they would change the whole machine"


def _of_container(asked: Object) -> Iterator[str]:
    """What no machine can do for a process."""
    if asked.get("privileged"):
        yield "privileged: a process of this runtime gets no rights of the machine"
    added = (asked.get("capabilities") or {}).get("add")
    if added:
        yield f"capabilities.add: {', '.join(added)}: a process of this runtime has no capability"
    if asked.get("procMount") not in (None, "Default"):
        yield f"procMount: {asked['procMount']}: a process sees the machine's /proc"
    if asked["seLinuxOptions"]:
        yield "seLinuxOptions: this runtime sets no label"
    if asked["windowsOptions"]:
        yield "windowsOptions: this node runs Linux"
    for name in ("seccompProfile", "appArmorProfile"):
        profile = (asked[name] or {}).get("type", "Unconfined")
        if profile == "Localhost":
            yield f"{name}: Localhost: this runtime loads no profile"
    if (asked["appArmorProfile"] or {}).get("type") == "RuntimeDefault":
        yield "appArmorProfile: RuntimeDefault: this runtime has no AppArmor profile"


def _of_machine(asked: Object, machine: Machine) -> Iterator[str]:
    """What some machines can do."""
    if asked.get("readOnlyRootFilesystem") and not machine.read_only_root:
        yield (
            "readOnlyRootFilesystem: the agent cannot make a mount namespace here, or the "
            "kernel is older than 5.12"
        )
    if (asked["seccompProfile"] or {}).get("type") == "RuntimeDefault" and not machine.seccomp:
        yield "seccompProfile: RuntimeDefault: this machine cannot filter system calls"


def _identity(
    user: User | None, asked: Object, groups: list[int], machine: Machine
) -> dict[str, Any] | None:
    why = ""
    if user is None:
        why = _other_than_own(asked, groups, machine)
        if not why:
            return None
        raise StartError(why, reason=REASON)
    uid = user.uid if asked["runAsUser"] is None else asked["runAsUser"]
    gid = user.gid if asked["runAsGroup"] is None else asked["runAsGroup"]
    if uid == 0 or gid == 0:
        why = "runAsUser and runAsGroup: 0 would be root of this machine, not of a container"
    elif gid not in (user.gid, machine.primary_group(uid)) and machine.is_known_group(gid):
        why = f"runAsGroup: {gid} is a group of this machine, and some are as good as root"
    else:
        known = [each for each in groups if each == 0 or machine.is_known_group(each)]
        if known:
            why = (
                f"supplementalGroups and fsGroup: {known[0]} would be groups of this machine, "
                "and some are as good as root"
            )
    if why:
        raise StartError(why, reason=REASON)
    return {"uid": uid, "gid": gid, "groups": groups}


def _other_than_own(asked: Object, groups: list[int], machine: Machine) -> str:
    """Of an agent that is not root, or is told not to change the user."""
    for name, own in (("runAsUser", machine.uid), ("runAsGroup", machine.gid)):
        if asked[name] not in (None, own):
            return f"{name}: {asked[name]}: an agent without root runs containers as {own} only"
    if asked["runAsNonRoot"] and machine.uid == 0:
        return "runAsNonRoot: containers of this agent run as root"
    held = {machine.gid, *machine.groups()}
    for each in groups:
        if each not in held:
            return (
                f"supplementalGroups and fsGroup: {each}: an agent without root can give "
                "containers its own groups only"
            )
    return ""
