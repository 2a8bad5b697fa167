# SPDX-License-Identifier: Apache-2.0
"""Finds a kubectl that is new enough, or builds one.

`python -m tests.e2e.kubectl` prints the path of kubectl, and builds one first if needed,
from `tools/kubectl` through the Go module registry. Built once into a
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
    installed = shutil.which("kubectl")
    if installed and _version(installed) >= OLDEST:
        return Path(installed)
    binary = go.cache() / f"kubectl-{_wanted()}"
    if not binary.exists():
        _build(binary)
    return binary


def _version(kubectl: str) -> tuple[int, int]:
    command = [kubectl, "version", "--client", "--output", "json"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        return (0, 0)
    return go.numbers(json.loads(answer.stdout)["clientVersion"]["gitVersion"])


def _wanted() -> str:
    match = re.search(r"k8s.io/kubectl v0\.(\d+\.\d+)", (SOURCE / "go.mod").read_text())
    assert match, "tools/kubectl/go.mod names no version of kubectl"
    return f"v1.{match[1]}"


def _build(binary: Path) -> None:
    print(f"building kubectl {_wanted()}; this takes a minute or two ...", flush=True)
    go.build(".", binary, folder=SOURCE, version=_wanted())


if __name__ == "__main__":
    try:
        print(f"kubectl: {path()}")
    except go.GoError as error:
        sys.exit(f"kubectl: {error}")
