# SPDX-License-Identifier: Apache-2.0
"""Sees to a kubectl that is new enough: the machine's, or one built here.

`python -m tests.e2e.kubectl` prints where it is, and builds it first if it
must, from `tools/kubectl` through the Go module registry. Built once into a
cache folder outside the tree.
"""

import json
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests import go

OLDEST = (1, 30)
SOURCE = Path(__file__).parents[2] / "tools" / "kubectl"


@cache
def path() -> Path:
    """A kubectl that the tests can use."""
    found = shutil.which("kubectl")
    if found and _version(found) >= OLDEST:
        return Path(found)
    built = go.cache() / f"kubectl-{_wanted()}"
    if not built.exists():
        _build(built)
    return built


def _version(kubectl: str) -> tuple[int, int]:
    command = [kubectl, "version", "--client", "--output", "json"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        return (0, 0)
    return go.numbers(json.loads(answer.stdout)["clientVersion"]["gitVersion"])


def _wanted() -> str:
    found = re.search(r"k8s.io/kubectl v0\.(\d+\.\d+)", (SOURCE / "go.mod").read_text())
    assert found, "tools/kubectl/go.mod names no version of kubectl"
    return f"v1.{found[1]}"


def _build(built: Path) -> None:
    print(f"building kubectl {_wanted()}; this takes a minute or two ...", flush=True)
    go.build(".", built, folder=SOURCE, version=_wanted())


if __name__ == "__main__":
    try:
        print(f"kubectl: {path()}")
    except go.GoError as error:
        sys.exit(f"kubectl: {error}")
