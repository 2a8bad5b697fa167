# SPDX-License-Identifier: Apache-2.0
"""The five programs of a control plane: found where they are said to be, or built.

KUBEBUILDER_ASSETS may name a folder that has some of them; the rest is built,
of the same version. What is built is kept in the cache folder by its version,
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
class Screen:
    """Where progress goes."""

    line: Show
    """A line that stays."""
    passing: Show
    """A line that the next one may replace; not shown where it could not be."""


def ensure(screen: Screen) -> tuple[str, Mapping[str, Path]]:
    """The version, and where each program is."""
    given = assets()
    version = module.wanted(_version_of(given))
    built = go.cache() / f"kubernetes-{version[1:]}"
    missing = [name for name in PACKAGES if name not in given and not (built / name).exists()]
    if missing:
        _build(version, built, missing, screen)
    return version, {name: given.get(name, built / name) for name in PACKAGES}


def assets() -> dict[str, Path]:
    """What the folder has that KUBEBUILDER_ASSETS names, if it does."""
    named = os.environ.get(ASSETS)
    if not named:
        return {}
    folder = Path(named)
    found = {name: folder / name for name in PACKAGES if (folder / name).is_file()}
    if not found:
        raise UsageError(f"{ASSETS}: {named!r} has none of {', '.join(PACKAGES)}")
    return found


def _version_of(given: Mapping[str, Path]) -> str:
    """The version of the API server that is there already; the others must match it."""
    if "kube-apiserver" not in given:
        return ""
    command = [str(given["kube-apiserver"]), "--version"]
    said = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    return module.checked(said.rpartition(" ")[2], f"{ASSETS}: {' '.join(command)}")


def _build(version: str, built: Path, missing: list[str], screen: Screen) -> None:
    source = module.folder(version, screen.line)
    built.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    screen.line(f"building Kubernetes {version} into {built}; some ten minutes on two cores")
    for number, name in enumerate(missing, 1):
        label = f"  {name} ({number} of {len(missing)})"
        screen.passing(f"{label} ...")
        begun = time.monotonic()

        def tick(seconds: float, label: str = label) -> None:
            screen.passing(f"{label} ... {seconds:.0f} s")

        go.build(PACKAGES[name], built / name, folder=source, version=version, tick=tick)
        screen.line(f"{label} {time.monotonic() - begun:.0f} s")
    screen.line(f"built in {time.monotonic() - started:.0f} s")
