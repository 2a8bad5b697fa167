# SPDX-License-Identifier: Apache-2.0
"""The programs of a control plane and of a node: from a given folder, or built.

KUBEBUILDER_ASSETS may name a folder that has some of them; the rest is built,
of the same version. The cache folder keeps built programs by version,
so the next run needs seconds.
"""

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from refloat.base.errors import UsageError
from tests import go
from tests.kubernetes import module
from tests.kubernetes.module import PACKAGES

ASSETS = "KUBEBUILDER_ASSETS"

Show = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class BuildOutput:
    """Where progress goes."""

    line: Show
    """A line that stays."""
    passing: Show
    """A line that the next one may replace; not shown without a terminal."""


def ensure(screen: BuildOutput) -> tuple[str, Mapping[str, Path]]:
    """The version, and where each program is."""
    existing = assets()
    version = module.wanted(_version_of(existing))
    folder = go.cache() / f"kubernetes-{version[1:]}"
    missing = [name for name in PACKAGES if name not in existing and not (folder / name).exists()]
    if missing:
        _build(version, folder, missing, screen)
    return version, {name: existing.get(name, folder / name) for name in PACKAGES}


def assets() -> dict[str, Path]:
    """The programs in the folder that KUBEBUILDER_ASSETS names, if set."""
    path = os.environ.get(ASSETS)
    if not path:
        return {}
    folder = Path(path)
    paths = {name: folder / name for name in PACKAGES if (folder / name).is_file()}
    if not paths:
        raise UsageError(f"{ASSETS}: {path!r} has none of {', '.join(PACKAGES)}")
    return paths


def _version_of(paths: Mapping[str, Path]) -> str:
    """The version of the existing API server; the others must have the same."""
    if "kube-apiserver" not in paths:
        return ""
    command = [str(paths["kube-apiserver"]), "--version"]
    output = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    return module.checked(output.rpartition(" ")[2], f"{ASSETS}: {' '.join(command)}")


def _build(version: str, folder: Path, missing: list[str], screen: BuildOutput) -> None:
    source = module.folder(version, screen.line)
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    screen.line(f"building Kubernetes {version} into {folder}; some ten minutes on two cores")
    for number, name in enumerate(missing, 1):
        label = f"  {name} ({number} of {len(missing)})"
        screen.passing(f"{label} ...")
        start = time.monotonic()

        def tick(seconds: float, label: str = label) -> None:
            screen.passing(f"{label} ... {seconds:.0f} s")

        go.build(PACKAGES[name], folder / name, folder=source, version=version, tick=tick)
        screen.line(f"{label} {time.monotonic() - start:.0f} s")
    screen.line(f"built in {time.monotonic() - started:.0f} s")
