# SPDX-License-Identifier: Apache-2.0
"""The configuration file: what it may say, and how a mistake in it is told."""

from pathlib import Path

import pytest

from refloat.config import load
from refloat.config.errors import ConfigError

HEAD = "apiVersion: config.refloat.dev/v1alpha1\nkind: Configuration\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "refloat.yaml"
    path.write_text(text)
    return path


def test_file_that_says_nothing_changes_nothing(tmp_path: Path) -> None:
    assert load.load(written(tmp_path, HEAD)) == load.Configuration()


def test_gates_are_read(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD + "featureGates: {TaintForceEviction: true}\n")
    assert load.load(path).feature_gates == {"TaintForceEviction": True}


def test_empty_gates_are_none(tmp_path: Path) -> None:
    assert load.load(written(tmp_path, HEAD + "featureGates:\n")).feature_gates == {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("", "the document: None: expected a mapping", id="an empty file"),
        pytest.param("- a", "the document: ['a']: expected a mapping", id="a list"),
        pytest.param("a: [", "is not YAML: ", id="no YAML"),
        pytest.param(
            "kind: Configuration",
            "apiVersion: None: expected 'config.refloat.dev/v1alpha1'",
            id="no version",
        ),
        pytest.param(
            HEAD.replace("Configuration", "Pod"),
            "kind: 'Pod': expected 'Configuration'",
            id="another kind",
        ),
        pytest.param(HEAD + "foo: 1", "foo: unknown field; known are: ", id="an unknown field"),
        pytest.param(
            HEAD + "featureGates: [a]",
            "featureGates: ['a']: expected a mapping",
            id="gates in a list",
        ),
        pytest.param(
            HEAD + "featureGates: {TaintForceEviction: 'yes'}",
            "featureGates.TaintForceEviction: 'yes': expected true or false",
            id="a gate that is neither",
        ),
        pytest.param(
            HEAD + "featureGates: {Nope: true}",
            "featureGates: unknown feature gate 'Nope'; known are: ",
            id="an unknown gate",
        ),
    ],
)
def test_mistake_is_told_with_file_and_field(tmp_path: Path, text: str, told: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as refused:
        load.load(path)
    assert str(refused.value).startswith(f"{path}: {told}")
    assert "\n" not in str(refused.value)


def test_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file or directory"):
        load.load(tmp_path / "none.yaml")


def test_file_of_bytes_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not YAML"):
        load.load(path)
