# SPDX-License-Identifier: Apache-2.0
"""`refloat node` finds the data directory of the cluster that kubectl uses."""

from pathlib import Path

import pytest

from refloat.cli import options


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """A data directory with a kubeconfig beside the store."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    (folder / "state.db").touch()
    (folder / "kubeconfig").touch()
    return folder


def test_the_data_directory_is_that_of_the_kubeconfig(cluster: Path) -> None:
    environ = {"KUBECONFIG": f"/elsewhere/config::{cluster}/kubeconfig"}
    assert options.find_data_dir(None, environ) == cluster


def test_the_option_comes_before_the_kubeconfig(cluster: Path, tmp_path: Path) -> None:
    environ = {"KUBECONFIG": f"{cluster}/kubeconfig"}
    assert options.find_data_dir(tmp_path / "other", environ) == tmp_path / "other"


@pytest.mark.parametrize("value", ["", "/elsewhere/config"])
def test_without_an_embedded_cluster_it_is_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    want = tmp_path / ".local/share/refloat"
    assert options.find_data_dir(None, {"KUBECONFIG": value}) == want
