# SPDX-License-Identifier: Apache-2.0
"""The capacity and the `nodeInfo` of this machine."""

import os
import platform
from pathlib import Path

import refloat

# A kubelet's default.
MAX_PODS = 110

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def capacity(folder: Path) -> dict[str, str]:
    """Processors, memory, and the disk of a folder."""
    disk = os.statvfs(folder)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": str(os.cpu_count() or 1),
        "memory": f"{memory // 1024}Ki",
        "ephemeral-storage": f"{disk.f_blocks * disk.f_frsize // 1024}Ki",
        "pods": str(MAX_PODS),
    }


def boot_id() -> str:
    """A new id after each boot of the machine."""
    return _text("/proc/sys/kernel/random/boot_id")


def info() -> dict[str, str]:
    """The fields of `nodeInfo`."""
    try:
        system = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        system = platform.system()
    return {
        "machineID": _text("/etc/machine-id"),
        "systemUUID": _text("/etc/machine-id"),
        "bootID": boot_id(),
        "kernelVersion": platform.release(),
        "osImage": system,
        "containerRuntimeVersion": f"refloat://{refloat.__version__}",
        "kubeProxyVersion": "",
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
    }


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
