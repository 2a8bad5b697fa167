# SPDX-License-Identifier: Apache-2.0
"""The security context of a container: the runtime honours each field or refuses the pod.

A process of this runtime has no image, no user namespace, and the machine's own
processes beside it. If a process cannot have the value of a field, the container waits
with `CreateContainerConfigError`, as with a kubelet. The runtime ignores no field.
Every container runs without capabilities and cannot gain rights (NoNewPrivs).

Pure: `Machine` has the facts of the machine.
"""

import grp
import os
import pwd
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from refloat.agent.keeper import mounts, start_request
from refloat.agent.process.settings import ContainerUser
from refloat.agent.runtime import StartError
from refloat.api.meta import Object

REASON = "CreateContainerConfigError"

# Fields that a container takes from its pod if it does not set them.
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
    """The features of this machine, and the user of the agent."""

    view: str = mounts.NAMESPACE
    """The kind of namespace that the keeper can make."""

    read_only_root: bool = True
    seccomp: bool = True
    uid: int = field(default_factory=os.geteuid)
    gid: int = field(default_factory=os.getegid)
    groups: Callable[[], Iterable[int]] = os.getgroups
    is_known_group: Callable[[int], bool] = _is_known_group
    """Whether the machine has a name for a group: some named groups are as good as root."""

    primary_group: Callable[[int], int | None] = _primary_group
    """The group of a user of the machine."""

    @classmethod
    def of(cls, features: dict[str, Any]) -> "Machine":
        """From the keeper's answer to `hello`; raises `StartError` for another version.

        An older keeper would ignore new fields of a request, such as the part of a volume.
        """
        protocol = features.get("protocol", 1)
        if protocol != start_request.PROTOCOL:
            pid = features.get("pid")
            raise StartError(
                f"the keeper of this node (process {pid}) is of another version of Refloat: it has "
                f"protocol {protocol}, the agent has {start_request.PROTOCOL}. What runs goes on, "
                f"and nothing can start. Drain the node, then `kill {pid}` on its machine: that "
                "ends the keeper and the rest of its containers, and the agent starts a new keeper"
            )
        return cls(
            view=features["mounts"],
            read_only_root=features["read_only_root"],
            seccomp=features["seccomp"],
        )


def resolve(
    user: ContainerUser | None, pod: Object, container: Object, machine: Machine
) -> dict[str, Any]:
    """The security fields of a start request; raises `StartError` to refuse the container.

    `user` is the user of containers without `runAsUser`; None: the agent's own user.
    """
    spec = pod["spec"]
    of_pod = spec.get("securityContext") or {}
    own = container.get("securityContext") or {}
    context = {name: own.get(name, of_pod.get(name)) for name in _SHARED} | {
        name: value for name, value in own.items() if name not in _SHARED
    }
    for why in _refusals(spec, context, machine):
        raise StartError(why, reason=REASON)
    groups = [*(of_pod.get("supplementalGroups") or ())]
    if of_pod.get("fsGroup") is not None:
        groups.append(of_pod["fsGroup"])
    return {
        "user": _identity(user, context, groups, machine),
        "read_only_root": bool(context.get("readOnlyRootFilesystem")),
        "seccomp": (context["seccompProfile"] or {}).get("type") == "RuntimeDefault",
    }


def _refusals(spec: Object, context: Object, machine: Machine) -> Iterator[str]:
    """Why a process cannot have a field of the pod: on any machine, then on this one."""
    added = (context.get("capabilities") or {}).get("add") or ()
    proc = context.get("procMount")
    seccomp = (context["seccompProfile"] or {}).get("type")
    app_armor = (context["appArmorProfile"] or {}).get("type")
    makes_read_only = machine.read_only_root or not context.get("readOnlyRootFilesystem")
    refusals = {
        "hostUsers: false: a process has no user namespace of its pod's": (
            spec.get("hostUsers") is False
        ),
        "sysctls: they would change the whole machine": (
            (spec.get("securityContext") or {}).get("sysctls")
        ),
        "privileged: a process of this runtime gets no rights of the machine": (
            context.get("privileged")
        ),
        f"capabilities.add: {', '.join(added)}: a process of this runtime has no capability": added,
        f"procMount: {proc}: a process sees the machine's /proc": proc not in (None, "Default"),
        "seLinuxOptions: this runtime sets no label": context["seLinuxOptions"],
        "windowsOptions: this node runs Linux": context["windowsOptions"],
        "seccompProfile: Localhost: this runtime loads no profile": seccomp == "Localhost",
        "appArmorProfile: Localhost: this runtime loads no profile": app_armor == "Localhost",
        "appArmorProfile: RuntimeDefault: this runtime has no AppArmor profile": (
            app_armor == "RuntimeDefault"
        ),
        "readOnlyRootFilesystem: the agent cannot make a mount namespace here, or the kernel is "
        "older than 5.12": not makes_read_only,
        "seccompProfile: RuntimeDefault: this machine cannot filter system calls": (
            seccomp == "RuntimeDefault" and not machine.seccomp
        ),
    }
    return (why for why, applies in refusals.items() if applies)


def _identity(
    user: ContainerUser | None, context: Object, groups: list[int], machine: Machine
) -> dict[str, Any] | None:
    """The user of the container; None: that of the agent, which cannot or must not change it."""
    uid, gid = context["runAsUser"], context["runAsGroup"]
    if user is None:
        own_groups = {machine.gid, *machine.groups()}
        other = next((each for each in groups if each not in own_groups), None)
        only = "an agent without root runs containers as"
        refusals = {
            f"runAsUser: {uid}: {only} {machine.uid} only": uid not in (None, machine.uid),
            f"runAsGroup: {gid}: {only} {machine.gid} only": gid not in (None, machine.gid),
            "runAsNonRoot: containers of this agent run as root": (
                context["runAsNonRoot"] and machine.uid == 0
            ),
            f"supplementalGroups and fsGroup: {other}: an agent without root can give containers "
            "its own groups only": other is not None,
        }
    else:
        uid = user.uid if uid is None else uid
        gid = user.gid if gid is None else gid
        is_own_group = gid in (user.gid, machine.primary_group(uid))
        unsafe = next((each for each in groups if each == 0 or machine.is_known_group(each)), None)
        refusals = {
            "runAsUser and runAsGroup: 0 would be root of this machine, not of a container": (
                0 in (uid, gid)
            ),
            f"runAsGroup: {gid} is a group of this machine, and some are as good as root": (
                not is_own_group and machine.is_known_group(gid)
            ),
            f"supplementalGroups and fsGroup: {unsafe} would be groups of this machine, and some "
            "are as good as root": unsafe is not None,
        }
    for why, applies in refusals.items():
        if applies:
            raise StartError(why, reason=REASON)
    return None if user is None else {"uid": uid, "gid": gid, "groups": groups}
