# SPDX-License-Identifier: Apache-2.0
"""Manifests: their pods, and the log messages for bad files."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from refloat.agent import manifests
from refloat.agent.manifests import Manifests
from refloat.api.meta import Object
from tests.cases import cases

NOW = "2025-01-01T00:00:00.000000Z"


def manifest(name: str = "web", **spec: object) -> Object:
    container = {"name": "c", "image": "i", "command": ["true"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], **spec},
    }


def write(path: Path, obj: Object) -> None:
    """As a whole, under another name first."""
    beside = path.with_name(f".{path.name}")
    beside.write_text(yaml.safe_dump(obj))
    beside.replace(path)


def folder_of(path: Path) -> Manifests:
    return Manifests(path, "n1", lambda: NOW)


def test_a_manifest_becomes_what_a_kubelet_makes_of_it(tmp_path: Path) -> None:
    write(tmp_path / "web.yaml", manifest(tolerations=[{"key": "k", "operator": "Exists"}]))
    ((key, pod),) = folder_of(tmp_path).look().items()
    assert key == ("default", "web-n1")
    uid = pod["metadata"]["uid"]
    assert len(uid) == 32
    assert pod["metadata"]["annotations"] == {
        "kubernetes.io/config.hash": uid,
        "kubernetes.io/config.mirror": uid,
        "kubernetes.io/config.seen": NOW,
        "kubernetes.io/config.source": "file",
    }
    spec = pod["spec"]
    assert (spec["nodeName"], spec["restartPolicy"]) == ("n1", "Always")
    assert spec["tolerations"][1:] == [{"operator": "Exists", "effect": "NoExecute"}]
    assert pod["status"]["phase"] == "Pending"


def test_the_uid_is_that_of_content_file_and_node(tmp_path: Path) -> None:
    def uid(obj: Object, node: str = "n1", path: str = "a.yaml") -> str:
        pod, _ = manifests.parse(yaml.safe_dump(obj).encode(), node, tmp_path / path)
        return str(pod["metadata"]["uid"])

    same = manifest()
    same["metadata"]["uid"] = "whatever"
    others = [uid(manifest(hostname="h")), uid(manifest(), "n2"), uid(manifest(), path="b.yaml")]
    assert uid(manifest()) == uid(manifest())
    assert len({uid(manifest()), *others}) == 4


def test_only_files_that_are_meant_are_read(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yml", "c.json"):
        write(tmp_path / name, manifest(name[0]))
    for name in (".hidden.yaml", "notes.txt", "a.yaml~"):
        (tmp_path / name).write_text("not: a pod")
    (tmp_path / "folder.yaml").mkdir()
    assert [name for _, name in folder_of(tmp_path).look()] == ["a-n1", "b-n1", "c-n1"]


@cases(
    "content want",
    {
        "an empty file": ("", "metadata.name: Required value"),
        "no YAML": ("a: [", "yaml: line"),
        "no pod": ("kind: Job\napiVersion: batch/v1\n", "Job"),
        "a wrong type": (
            yaml.safe_dump({**manifest(), "spec": {"containers": "x"}}),
            "cannot unmarshal string into Go struct field PodSpec.spec.containers",
        ),
        "a wrong value": (
            yaml.safe_dump(manifest(restartPolicy="Sometimes")),
            'spec.restartPolicy: Unsupported value: "Sometimes"',
        ),
        "no name": (yaml.safe_dump(manifest("")), "metadata.name: Required value"),
        "no spec": (
            yaml.safe_dump({"metadata": {"name": "web"}}),
            "spec.containers: Required value",
        ),
        "a bad name": (yaml.safe_dump(manifest("Web")), 'metadata.name: Invalid value: "Web-n1"'),
        "an account": (
            yaml.safe_dump(manifest(serviceAccountName="a")),
            "static pods may not reference serviceaccounts",
        ),
        "a secret": (
            yaml.safe_dump(manifest(volumes=[{"name": "v", "secret": {"secretName": "s"}}])),
            "static pods may not reference secrets",
        ),
    },
)
def test_a_bad_manifest_is_told_once_and_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str, want: str
) -> None:
    (tmp_path / "bad.yaml").write_text(content)
    write(tmp_path / "good.yaml", manifest())
    here = folder_of(tmp_path)
    for _ in range(3):
        assert [name for _, name in here.look()] == ["web-n1"]
    (message,) = caplog.messages
    assert message.startswith(f"{tmp_path}/bad.yaml: ")
    assert want in message
    assert "\n" not in message


def test_a_field_that_nobody_knows_is_told_and_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "web.yaml", manifest(restartpolicy="Never", hostname="h"))
    assert len(folder_of(tmp_path).look()) == 1
    assert 'unknown field "spec.restartpolicy": ignored' in caplog.text


def test_a_manifest_that_turns_bad_keeps_its_pod(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "web.yaml"
    write(path, manifest())
    here = folder_of(tmp_path)
    before = here.look()
    write(path, manifest(restartPolicy="Sometimes"))
    assert here.look() == before
    assert caplog.text.endswith("; its earlier pod runs on\n")
    write(path, manifest(restartPolicy="Never"))
    assert here.look() != before
    path.unlink()
    assert here.look() == {}


def test_of_two_pods_with_one_name_the_first_file_s_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "a.yaml", manifest(hostname="a"))
    write(tmp_path / "b.yaml", manifest(hostname="b"))
    here = folder_of(tmp_path)
    for _ in range(2):
        (pod,) = here.look().values()
        assert pod["spec"]["hostname"] == "a"
    assert caplog.messages == [
        f"{tmp_path}/b.yaml: metadata.name: another file has a pod default/web-n1"
    ]
    (tmp_path / "a.yaml").unlink()
    (pod,) = here.look().values()
    assert pod["spec"]["hostname"] == "b"


def test_a_folder_that_is_not_there_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    here = folder_of(tmp_path / "later")
    assert [here.look(), here.look()] == [{}, {}]
    assert caplog.messages == [
        f"{tmp_path}/later: the folder does not exist, so there are no static pods"
    ]
    (tmp_path / "later").mkdir()
    write(tmp_path / "later" / "web.yaml", manifest())
    assert len(here.look()) == 1


def test_a_folder_that_cannot_be_read_keeps_its_pods(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "web.yaml", manifest())
    here = folder_of(tmp_path)
    before = here.look()

    def refuse(path: Path) -> object:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert [here.look(), here.look()] == [before, before]
    assert caplog.messages == [f"{tmp_path}: Permission denied; its pods stay as they are"]


def test_a_file_that_did_not_change_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "web.yaml", manifest())
    here = folder_of(tmp_path)
    here.look()
    paths: list[Path] = []
    opening: Callable[..., object] = Path.open

    def noted(path: Path, mode: str = "r", **more: object) -> object:
        paths.append(path)
        return opening(path, mode, **more)

    monkeypatch.setattr(Path, "open", noted)
    here.look()
    assert paths == []
    write(tmp_path / "web.yaml", manifest(hostname="h"))
    paths.clear()
    here.look()
    assert paths == [tmp_path / "web.yaml"]


def test_a_manifest_that_is_too_large_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (tmp_path / "huge.yaml").open("wb") as file:
        file.truncate(manifests.MAX_BYTES + 1)
    assert folder_of(tmp_path).look() == {}
    assert caplog.messages == [f"{tmp_path}/huge.yaml: larger than 10 MiB"]
