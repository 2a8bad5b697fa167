# SPDX-License-Identifier: Apache-2.0
"""The settings of a node that runs containers as processes."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from refloat.agent.process.images import ImageSettings

NOBODY = 65534


@dataclass(frozen=True, slots=True)
class ContainerUser:
    """The user of containers."""

    uid: int = NOBODY
    gid: int = NOBODY


def default_user() -> ContainerUser | None:
    """User 65534 if the agent is root; else the agent's own user, who cannot change."""
    return ContainerUser() if os.geteuid() == 0 else None


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """The settings of one node."""

    folder: Path
    """The data of the node; other users cannot read the folder, and nodes do not share one."""

    user: ContainerUser | None = field(default_factory=default_user)
    """The user of containers without `runAsUser`; None: the agent's own user."""

    hidden: tuple[Path, ...] = ()
    """Files and folders of this machine that containers must not see, besides `folder`."""

    shared: Path | None = None
    """The folder of persistent volumes, which the nodes of this machine share."""

    images: ImageSettings = field(default_factory=ImageSettings)

    log_bytes: int = 10 * 1024 * 1024
    """The size of a full log, which then rotates: a kubelet's default."""

    log_files: int = 5
    """The most files of a container's log: a kubelet's default."""

    max_pids: int = 4096
    """The most processes and threads of a container: a small part of a machine's limit."""

    use_groups: bool = True
    """Whether each container gets a cgroup, if the machine allows cgroups."""
