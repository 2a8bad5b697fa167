# SPDX-License-Identifier: Apache-2.0
"""How a node runs containers as processes."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from refloat.agent.process.images import ImageSettings

NOBODY = 65534


@dataclass(frozen=True, slots=True)
class User:
    """Whom containers run as."""

    uid: int = NOBODY
    gid: int = NOBODY


def default_user() -> User | None:
    """Nobody, where the agent is root; else the agent's own user, who cannot change."""
    return User() if os.geteuid() == 0 else None


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """One node's."""

    folder: Path
    """All that the node keeps on disk; one node each, only its owner can look into it."""

    user: User | None = field(default_factory=default_user)
    """Whom containers run as that do not say; None: the agent's own user."""

    hidden: tuple[Path, ...] = ()
    """Files and folders of this machine that no container sees, besides `folder`."""

    shared: Path | None = None
    """Where the folders behind claims are, which the nodes of this machine share."""

    images: ImageSettings = field(default_factory=ImageSettings)

    log_bytes: int = 10 * 1024 * 1024
    """When a log is rotated: a kubelet's default."""

    log_files: int = 5
    """How many files a container's log has at most: a kubelet's default."""

    max_pids: int = 4096
    """Processes and threads that a container may have: far from what a machine has in all."""

    use_groups: bool = True
    """Whether a cgroup holds each container together, where the machine allows it."""
