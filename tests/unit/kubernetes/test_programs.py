# SPDX-License-Identifier: Apache-2.0
"""Programs are taken from where they are, and only the rest is built."""

from pathlib import Path

import pytest

from refloat.base.errors import UsageError
from tests import go
from tests.kubernetes import module, programs
from tests.unit.kubernetes import impostors

SCREEN = programs.BuildOutput(lambda _: None, lambda _: None)


@pytest.fixture(autouse=True)
def assets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for KUBEBUILDER_ASSETS, and a machine on which nothing can be built."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(module.NAMED, raising=False)
    monkeypatch.setenv(programs.ASSETS, str(tmp_path / "assets"))
    impostors.write(tmp_path / "go", "import sys; sys.exit('' if 'env' in sys.argv else 'built!')")
    (tmp_path / "assets").mkdir()
    return tmp_path / "assets"


def api_server(assets: Path, version: str) -> None:
    impostors.write(assets / "kube-apiserver", f"print('Kubernetes {version}')")


def built(version: str, *names: str) -> Path:
    folder = go.cache() / f"kubernetes-{version}"
    folder.mkdir()
    for name in names:
        (folder / name).touch()
    return folder


def test_a_folder_that_has_all_is_enough(assets: Path) -> None:
    for name in module.PACKAGES:
        (assets / name).touch()
    api_server(assets, "v1.34.2")
    version, paths = programs.ensure(SCREEN)
    assert version == "v1.34.2"
    assert paths == {name: assets / name for name in module.PACKAGES}


def test_what_a_folder_lacks_is_of_the_version_that_it_has(assets: Path) -> None:
    api_server(assets, "v1.34.2")
    folder = built("1.34.2", *(set(module.PACKAGES) - {"kube-apiserver"}))
    _, paths = programs.ensure(SCREEN)
    assert paths["kube-apiserver"] == assets / "kube-apiserver"
    assert paths["kube-scheduler"] == folder / "kube-scheduler"


def test_what_was_built_is_not_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(programs.ASSETS)
    folder = built(module.pinned()[1:], *module.PACKAGES)
    _, paths = programs.ensure(SCREEN)
    assert paths == {name: folder / name for name in module.PACKAGES}


def test_only_what_is_missing_is_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(programs.ASSETS)
    code = "import sys\nif sys.argv[1] == 'env': print('go1.26.0'); sys.exit()\n"
    code += "open(sys.argv[sys.argv.index('-o') + 1], 'w').write(sys.argv[-1])"
    impostors.write(tmp_path / "go", code)
    folder = built(module.pinned()[1:], "etcd", "kube-apiserver", "kubectl", "kubelet")
    messages: list[str] = []
    programs.ensure(programs.BuildOutput(messages.append, lambda _: None))
    assert (folder / "kube-scheduler").read_text() == "k8s.io/kubernetes/cmd/kube-scheduler"
    assert (folder / "etcd").read_text() == ""
    assert [each.split(")")[0].strip() for each in messages[1:-1]] == [
        "kube-controller-manager (1 of 2",
        "kube-scheduler (2 of 2",
    ]


def test_a_folder_with_nothing_in_it_is_refused(assets: Path) -> None:
    with pytest.raises(UsageError, match=r"KUBEBUILDER_ASSETS: '.*assets' has none of etcd"):
        programs.ensure(SCREEN)


def test_an_api_server_that_says_no_version_is_refused(assets: Path) -> None:
    api_server(assets, "v0.0.0-master+$Format:%H$")
    with pytest.raises(UsageError, match=r"kube-apiserver --version: .* is not a version"):
        programs.ensure(SCREEN)
