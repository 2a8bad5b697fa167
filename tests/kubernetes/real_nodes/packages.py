# SPDX-License-Identifier: Apache-2.0
"""The programs of a node that Debian packages, installed where they are missing."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from refloat.base.errors import UsageError

# a file of the package -> the package
PACKAGES = {
    Path("/usr/bin/containerd"): "containerd",
    Path("/usr/sbin/runc"): "runc",
    Path("/usr/lib/cni/bridge"): "containernetworking-plugins",
    Path("/usr/sbin/iptables"): "iptables",
    Path("/bin/busybox"): "busybox-static",
    Path("/sbin/ip"): "iproute2",
}


def ensure(show: Callable[[str], object]) -> None:
    """Install what is missing; refuse a machine that cannot have real nodes."""
    if os.geteuid() != 0:
        raise UsageError("real nodes need root; run as root, or leave out the suite `kubelets`")
    missing = [package for file, package in PACKAGES.items() if not file.exists()]
    if missing and not shutil.which("apt-get"):
        raise UsageError(f"real nodes need Debian's packages {', '.join(missing)}")
    if missing:
        show(f"installing {', '.join(missing)}")
        _apt_get("update")
        _apt_get("install", "--yes", "--no-install-recommends", *missing)
    if _is_dynamic(Path("/bin/busybox")):
        raise UsageError("real nodes need a static busybox; install busybox-static")


def _apt_get(*arguments: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "--quiet", "--option=Acquire::Retries=3", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise UsageError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")


def _is_dynamic(program: Path) -> bool:
    """A dynamic program names its loader in the first page."""
    return b"/ld-linux" in program.read_bytes()[:4096]
