# SPDX-License-Identifier: Apache-2.0
"""Images without a registry: busybox, packed as an OCI layout in a tar file."""

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

BUSYBOX = Path("/bin/busybox")

# Not `latest`: the kubelet would ask a registry each time.
WORK = "refloat.test/busybox:1"
PAUSE = "refloat.test/pause:1"

_APPLETS = ("cat", "date", "env", "false", "ls", "mv", "sh", "sleep", "touch", "true", "wget")

_COMMANDS = {WORK: ["/bin/sh"], PAUSE: ["/bin/sleep", "2147483647"]}


def write(image: str, path: Path) -> None:
    """Write the image to a tar file that `ctr images import` reads."""
    layer = _layer()
    blobs = _Blobs()
    config = blobs.add_json(
        "application/vnd.oci.image.config.v1+json",
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Cmd": _COMMANDS[image], "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        },
    )
    packed = blobs.add(
        "application/vnd.oci.image.layer.v1.tar+gzip", gzip.compress(layer, 1, mtime=0)
    )
    manifest = blobs.add_json(
        "application/vnd.oci.image.manifest.v1+json",
        {"schemaVersion": 2, "config": config, "layers": [packed]},
    )
    manifest["annotations"] = {"io.containerd.image.name": image}
    index = {"schemaVersion": 2, "manifests": [manifest]}
    with tarfile.open(path, "w") as tar:
        _put(tar, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        _put(tar, "index.json", json.dumps(index).encode())
        for digest, content in blobs.contents.items():
            _put(tar, f"blobs/sha256/{digest.removeprefix('sha256:')}", content)


class _Blobs:
    """Contents by their digests."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}

    def add(self, kind: str, content: bytes) -> dict[str, Any]:
        """Keep a blob; its descriptor."""
        digest = _digest(content)
        self.contents[digest] = content
        return {"mediaType": kind, "digest": digest, "size": len(content)}

    def add_json(self, kind: str, document: object) -> dict[str, Any]:
        return self.add(kind, json.dumps(document).encode())


def _layer() -> bytes:
    """The file system: busybox, and a link for each of its programs that the tests use."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder in ("bin", "dev", "etc", "proc", "sys", "tmp"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        _put(tar, "etc/passwd", b"root:x:0:0:root:/:/bin/sh\n")
        _put(tar, "bin/busybox", BUSYBOX.read_bytes(), 0o755)
        for applet in _APPLETS:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    return buffer.getvalue()


def _put(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
