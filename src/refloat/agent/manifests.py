# SPDX-License-Identifier: Apache-2.0
"""Reads the static pods of a node from a folder of manifests.

This module reads a file only when the file is new or has changed. It logs an error in a
file once, with the file, the field and the value. The last good pod of that file
stays, because a typing error must not end a running pod. `static_pods` runs the pods.
"""

import hashlib
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import msgspec

from refloat.api import codec, errors, pod_references, qos, schema
from refloat.api.defaults import pod as defaults
from refloat.api.meta import Object
from refloat.api.validation import pod as validation
from refloat.base.errors import RefloatError

log = logging.getLogger(__name__)

# A kubelet's limit.
MAX_BYTES = 10 << 20

_SUFFIXES = (".yaml", ".yml", ".json")

SOURCE = "kubernetes.io/config.source"
HASH = "kubernetes.io/config.hash"
SEEN = "kubernetes.io/config.seen"
MIRROR = "kubernetes.io/config.mirror"

# A static pod stays on its node in any case, because it cannot run elsewhere.
_TOLERATION = {"operator": "Exists", "effect": "NoExecute"}

_Stamp: TypeAlias = tuple[int, int, int, int]
Key: TypeAlias = tuple[str, str]
"""A namespace and a name."""


class ManifestError(RefloatError):
    """A file does not describe a valid pod."""


@dataclass(slots=True)
class _ManifestFile:
    stamp: _Stamp
    pod: Object | None = None  # the last good one


class Manifests:
    """The pods of a folder. `node` is the name of their node."""

    def __init__(self, folder: Path, node: str, now: Callable[[], str]) -> None:
        self._folder, self._node, self._now = folder, node, now
        self._files: dict[Path, _ManifestFile] = {}
        self._trouble = ""
        self._doubled: dict[Path, None] = {}

    def look(self) -> Mapping[Key, Object]:
        """The pods of all files, by namespace and name."""
        try:
            stamps = _stamps(self._folder)
        except FileNotFoundError:
            self._complain("the folder does not exist, so there are no static pods")
            stamps = {}
        except OSError as error:
            self._complain(f"{error.strerror}; its pods stay as they are")
            return self._pods()
        else:
            self._trouble = ""
        self._files = {path: self._file(path, stamp) for path, stamp in stamps.items()}
        return self._pods()

    def _complain(self, text: str) -> None:
        """Log an error of the folder once, until the error changes."""
        if text != self._trouble:
            log.error("%s: %s", self._folder, text)
        self._trouble = text

    def _file(self, path: Path, stamp: _Stamp) -> _ManifestFile:
        before = self._files.get(path)
        if before is not None and before.stamp == stamp:
            return before
        pod = before.pod if before is not None else None
        try:
            pod = self._read(path)
        except ManifestError as error:
            stays = "; its earlier pod runs on" if pod is not None else ""
            log.error("%s: %s%s", path, error, stays)
        return _ManifestFile(stamp, pod)

    def _read(self, path: Path) -> Object:
        try:
            with path.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise ManifestError(str(error.strerror)) from error
        if len(content) > MAX_BYTES:
            raise ManifestError(f"larger than {MAX_BYTES >> 20} MiB")
        pod, unknown = parse(content, self._node, path)
        for each in unknown:
            log.warning("%s: %s: ignored", path, each)
        pod["metadata"]["annotations"][SEEN] = self._now()
        return pod

    def _pods(self) -> Mapping[Key, Object]:
        """The pods by name; if two files have one name, the first file counts."""
        pods: dict[Key, Object] = {}
        doubled: dict[Path, None] = {}
        for path, file in sorted(self._files.items()):
            if file.pod is None:
                continue
            metadata = file.pod["metadata"]
            key = metadata["namespace"], metadata["name"]
            if pods.setdefault(key, file.pod) is not file.pod:
                doubled[path] = None
                if path not in self._doubled:
                    log.error("%s: metadata.name: another file has a pod %s/%s", path, *key)
        self._doubled = doubled
        return pods


def _stamps(folder: Path) -> dict[Path, _Stamp]:
    """Times, size and inode of each manifest, to notice changes."""
    stamps = {}
    with os.scandir(folder) as entries:
        for each in entries:
            if each.name.startswith(".") or not each.name.endswith(_SUFFIXES):
                continue
            try:
                stat = each.stat()
            except FileNotFoundError:
                continue  # the file is gone meanwhile
            if each.is_file():
                stamp = (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino)
                stamps[Path(each.path)] = stamp
    return stamps


def parse(content: bytes, node: str, path: Path) -> tuple[Object, list[str]]:
    """The mirror pod of a manifest, without its owner, and the unknown fields.

    Raises `ManifestError`.
    """
    try:
        decoded = codec.decode(content, schema.struct("v1", "Pod"), media="yaml")
    except errors.StatusError as error:
        raise ManifestError(str(error)) from error
    pod = decoded.obj
    metadata, spec = pod.setdefault("metadata", {}), pod.setdefault("spec", {})
    if not metadata.get("name"):
        raise ManifestError("metadata.name: Required value: name is needed for the pod")
    defaults.apply(pod)
    # A hash of the whole manifest, so that a changed manifest is a new pod.
    digest = hashlib.blake2b(digest_size=16)
    digest.update(msgspec.json.encode(pod, order="sorted"))
    digest.update(f"host:{node}file:{path}".encode())
    uid = digest.hexdigest()
    # The fields that a kubelet sets before it runs a static pod.
    metadata |= {"uid": uid, "name": f"{metadata['name']}-{node}", "generation": 1}
    metadata.setdefault("namespace", "default")
    annotations = {HASH: uid, MIRROR: uid, SOURCE: "file"}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations}
    for name in ("ownerReferences", "finalizers", "resourceVersion", "deletionTimestamp"):
        metadata.pop(name, None)
    spec["nodeName"] = node
    tolerations = spec.get("tolerations") or []
    if _TOLERATION not in tolerations:
        spec["tolerations"] = [*tolerations, dict(_TOLERATION)]
    pod["status"] = {"phase": "Pending", "qosClass": qos.qos_class(pod)}
    if mistakes := validation.validate_create(pod):
        raise ManifestError("; ".join(f"{each.path}: {each.body}" for each in mistakes))
    if kind := pod_references.first_kind(pod):
        raise ManifestError(f"static pods may not reference {kind}")
    return pod, decoded.problems
