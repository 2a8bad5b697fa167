# SPDX-License-Identifier: Apache-2.0
"""What this machine has, in the words of a Node."""

import os
import platform
from pathlib import Path

import refloat

# As many pods as a kubelet takes.
MAX_PODS = 110

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def capacity(folder: Path) -> dict[str, str]:
    """Processors, memory, and the disk on which a folder is."""
    disk = os.statvfs(folder)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": str(os.cpu_count() or 1),
        "memory": f"{memory // 1024}Ki",
        "ephemeral-storage": f"{disk.f_blocks * disk.f_frsize // 1024}Ki",
        "pods": str(MAX_PODS),
    }


def boot_id() -> str:
    """Another one after each start of the machine."""
    return _text("/proc/sys/kernel/random/boot_id")


def info() -> dict[str, str]:
    """`nodeInfo`, as far as it can be known here."""
    return {
        "machineID": _text("/etc/machine-id"),
        "systemUUID": _text("/etc/machine-id"),
        "bootID": boot_id(),
        "kernelVersion": platform.release(),
        "osImage": _system(),
        "containerRuntimeVersion": f"refloat://{refloat.__version__}",
        "kubeProxyVersion": "",
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
    }


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.system()


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
