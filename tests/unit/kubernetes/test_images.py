# SPDX-License-Identifier: Apache-2.0
"""The images of real nodes are OCI layouts whose parts have the digests that name them."""

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from tests.kubernetes.real_nodes import images


@pytest.fixture
def busybox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    program = b"\x7fELF"
    (tmp_path / "busybox").write_bytes(program)
    monkeypatch.setattr(images, "BUSYBOX", tmp_path / "busybox")
    return program


def contents(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        files = {each.name: tar.extractfile(each) for each in tar.getmembers()}
        return {name: file.read() for name, file in files.items() if file is not None}


@pytest.mark.usefixtures("busybox")
def test_each_blob_has_the_digest_of_its_name(tmp_path: Path) -> None:
    images.write(images.WORK, tmp_path / "image.tar")
    files = contents(tmp_path / "image.tar")
    blobs = {name: text for name, text in files.items() if name.startswith("blobs/")}
    assert len(blobs) == 3
    for name, text in blobs.items():
        assert name == f"blobs/sha256/{hashlib.sha256(text).hexdigest()}"


def test_the_index_leads_to_the_program(tmp_path: Path, busybox: bytes) -> None:
    images.write(images.PAUSE, tmp_path / "image.tar")
    files = contents(tmp_path / "image.tar")

    def blob(descriptor: dict[str, str]) -> bytes:
        return files[f"blobs/{descriptor['digest'].replace(':', '/')}"]

    (manifest,) = json.loads(files["index.json"])["manifests"]
    assert manifest["annotations"] == {"io.containerd.image.name": images.PAUSE}
    parts = json.loads(blob(manifest))
    config = json.loads(blob(parts["config"]))
    layer = gzip.decompress(blob(parts["layers"][0]))
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    assert config["config"]["Cmd"][0] == "/bin/sleep"
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        program = tar.extractfile("bin/busybox")
        assert program is not None
        assert program.read() == busybox
        assert tar.getmember("bin/sleep").linkname == "busybox"
