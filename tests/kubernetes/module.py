# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes version to build, and the Go module for the build.

The one that the tests follow is pinned in this folder, sums included. Another
one, which REFLOAT_KUBERNETES names, gets a separate module in the cache
folder, made in the same way. `python -m tests.kubernetes.module VERSION` makes
the pinned one anew.
"""

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from refloat.base.errors import UsageError
from tests import go

HERE = Path(__file__).parent
KUBERNETES = "k8s.io/kubernetes"

# program -> the package of the program
PACKAGES = {
    "etcd": "./etcd",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "kubelet": "k8s.io/kubernetes/cmd/kubelet",
}

# The first version in which a Job may name another controller.
OLDEST = (1, 32)

NAMED = "REFLOAT_KUBERNETES"

# What the module is made of besides go.mod and go.sum.
_SOURCES = ("programs.go", "etcd/main.go")

_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")

# In the main repository the parts of Kubernetes have no version.
_PART = re.compile(r"^\s(k8s\.io/[a-z-]+) v0\.0\.0(?!\S)", re.MULTILINE)
_ETCD = re.compile(r"^\sgo\.etcd\.io/etcd/client/v3 (v\S+)", re.MULTILINE)
_GO = re.compile(r"^go (\S+)", re.MULTILINE)

Tell = Callable[[str], object]


def pinned() -> str:
    """The version that is built when none is named, as `v1.2.3`."""
    match = re.search(rf"^\s{re.escape(KUBERNETES)} (v\S+)", _text(HERE / "go.mod"), re.MULTILINE)
    assert match, "go.mod names no version of Kubernetes"
    return match[1]


def wanted(default: str = "") -> str:
    """The version to build: the one that is named, else the default, else the pinned one."""
    version = os.environ.get(NAMED)
    return checked(version, NAMED) if version else (default or pinned())


def checked(text: str, where: str) -> str:
    """A version as `v1.2.3`; refuses what is none, or too old."""
    match = _VERSION.fullmatch(text)
    if not match:
        raise UsageError(f"{where}: {text!r} is not a version; want one like {pinned()[1:]}")
    if (int(match[1]), int(match[2])) < OLDEST:
        raise UsageError(f"{where}: {text!r} is too old; the oldest is {OLDEST[0]}.{OLDEST[1]}")
    return f"v{text.removeprefix('v')}"


def folder(version: str, tell: Tell) -> Path:
    """The folder of the module for this version; is written if missing."""
    if version == pinned():
        return HERE
    place = go.cache() / f"module-{version[1:]}"
    if not place.exists():
        tell(f"making a Go module for Kubernetes {version} ...")
        _make(version, place)
    return place


def _make(version: str, place: Path) -> None:
    """Write the module under another name first: half a module must not look complete."""
    beside = Path(tempfile.mkdtemp(prefix="module-", dir=place.parent))
    try:
        for name in _SOURCES:
            (beside / name).parent.mkdir(exist_ok=True)
            shutil.copy(HERE / name, beside / name)
        write(version, beside)
        beside.rename(place)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def write(version: str, place: Path) -> None:
    """Write go.mod and go.sum for a version of Kubernetes, for the machine at hand."""
    what = f"a Go module for Kubernetes {version}"
    output = go.run(
        go.toolchain(),
        *("mod", "download", "-json", f"{KUBERNETES}@{version}"),
        folder=Path(tempfile.gettempdir()),
        what=what,
    )
    upstream = Path(
        json.loads(output[output.index("{") :])["GoMod"]
    )  # the output before the JSON is not JSON
    (place / "go.mod").write_text(render(version, _text(upstream)))
    (place / "go.sum").unlink(missing_ok=True)
    # `mod tidy` would also want what the tests of Kubernetes import: more than is to be built.
    command = ("list", "-mod=mod", "-deps", *PACKAGES.values())
    go.run(go.toolchain(), *command, folder=place, what=what)


def render(version: str, upstream: str) -> str:
    """The text of go.mod: the parts and the etcd that this version of Kubernetes was made with."""
    etcd, language = _ETCD.search(upstream), _GO.search(upstream)
    assert etcd, f"{KUBERNETES} {version} names no etcd"
    assert language, f"{KUBERNETES} {version} names no version of Go"
    part_version = version.replace("v1.", "v0.", 1)
    replaced = [f"\t{part} => {part} {part_version}" for part in _PART.findall(upstream)]
    return "\n".join(
        [
            "module refloat.dev/tests/kubernetes",
            "",
            f"go {language[1]}",
            "",
            "require (",
            f"\tgo.etcd.io/etcd/server/v3 {etcd[1]}",
            f"\t{KUBERNETES} {version}",
            ")",
            "",
            "replace (",
            *replaced,
            ")",
            "",
        ]
    )


def _text(path: Path) -> str:
    return path.read_text()


def pin(version: str) -> None:
    """Make the pinned one anew, for all machines."""
    write(version, HERE)
    go.run(go.toolchain(), "mod", "tidy", folder=HERE, what=f"Kubernetes {version}")


if __name__ == "__main__":
    pin(checked(sys.argv[1], "VERSION"))
