# SPDX-License-Identifier: Apache-2.0
"""A folder of manifests, and the pods that they describe.

A file is looked at when it is new or has changed, and not before. What is
wrong with it is told once, with the file, the field and the value; the pod that
it described before stays, because whoever mistypes a word does not mean to end
what runs. Who runs the pods is `static_pods`'s business.
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

# As much as a kubelet reads of one.
MAX_BYTES = 10 << 20

_SUFFIXES = (".yaml", ".yml", ".json")

SOURCE = "kubernetes.io/config.source"
HASH = "kubernetes.io/config.hash"
SEEN = "kubernetes.io/config.seen"
MIRROR = "kubernetes.io/config.mirror"

# It stays whatever becomes of its node: nobody could start it elsewhere.
_TOLERATION = {"operator": "Exists", "effect": "NoExecute"}

_Stamp: TypeAlias = tuple[int, int, int, int]
Key: TypeAlias = tuple[str, str]
"""A namespace and a name."""


class ManifestError(RefloatError):
    """A file that describes no pod; says why."""


@dataclass(slots=True)
class _File:
    stamp: _Stamp
    pod: Object | None = None  # the last that was good


class Manifests:
    """The pods of a folder. `node` is the name of the node that they are for."""

    def __init__(self, folder: Path, node: str, now: Callable[[], str]) -> None:
        self._folder, self._node, self._now = folder, node, now
        self._files: dict[Path, _File] = {}
        self._trouble = ""
        self._doubled: dict[Path, None] = {}

    def look(self) -> Mapping[Key, Object]:
        """All pods that there should be now, by namespace and name."""
        try:
            stamps = _stamps(self._folder)
        except FileNotFoundError:
            self._complain("is not there, and so describes no pods")
            stamps = {}
        except OSError as error:
            self._complain(f"{error.strerror}; its pods stay as they are")
            return self._pods()
        else:
            self._trouble = ""
        self._files = {path: self._file(path, stamp) for path, stamp in stamps.items()}
        return self._pods()

    def _complain(self, text: str) -> None:
        """Once, until something else is the matter."""
        if text != self._trouble:
            log.error("%s: %s", self._folder, text)
        self._trouble = text

    def _file(self, path: Path, stamp: _Stamp) -> _File:
        known = self._files.get(path)
        if known is not None and known.stamp == stamp:
            return known
        pod = known.pod if known is not None else None
        try:
            pod = self._read(path)
        except ManifestError as error:
            stays = "; the pod that it described before runs on" if pod is not None else ""
            log.error("%s: %s%s", path, error, stays)
        return _File(stamp, pod)

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
            log.warning("%s: %s: passed over", path, each)
        pod["metadata"]["annotations"][SEEN] = self._now()
        return pod

    def _pods(self) -> Mapping[Key, Object]:
        """Of two with one name the one in the first file."""
        found: dict[Key, Object] = {}
        doubled: dict[Path, None] = {}
        for path, file in sorted(self._files.items()):
            if file.pod is None:
                continue
            metadata = file.pod["metadata"]
            key = metadata["namespace"], metadata["name"]
            if found.setdefault(key, file.pod) is not file.pod:
                doubled[path] = None
                if path not in self._doubled:
                    log.error("%s: metadata.name: another file has a pod %s/%s", path, *key)
        self._doubled = doubled
        return found


def _stamps(folder: Path) -> dict[Path, _Stamp]:
    """What tells a file that changed from one that did not."""
    found = {}
    with os.scandir(folder) as entries:
        for each in entries:
            if each.name.startswith(".") or not each.name.endswith(_SUFFIXES):
                continue
            try:
                told = each.stat()
            except FileNotFoundError:
                continue  # it went meanwhile
            if each.is_file():
                stamp = (told.st_mtime_ns, told.st_ctime_ns, told.st_size, told.st_ino)
                found[Path(each.path)] = stamp
    return found


def parse(content: bytes, node: str, path: Path) -> tuple[Object, list[str]]:
    """The mirror pod of a manifest, and the fields that nobody knows; raises `ManifestError`.

    Apart from its owner, which only the API server can name.
    """
    try:
        decoded = codec.decode(content, schema.struct("v1", "Pod"), media="yaml")
    except errors.StatusError as error:
        raise ManifestError(str(error)) from error
    pod = decoded.obj
    metadata = pod.setdefault("metadata", {})
    if not metadata.get("name"):
        raise ManifestError("metadata.name: Required value: name is needed for the pod")
    pod.setdefault("spec", {})
    defaults.apply(pod)
    _localize(pod, node, path)
    if mistakes := validation.validate_create(pod):
        raise ManifestError("; ".join(f"{each.path}: {each.body}" for each in mistakes))
    if named := pod_references.first_kind(pod):
        raise ManifestError(f"static pods may not reference {named}")
    return pod, decoded.problems


def _localize(pod: Object, node: str, path: Path) -> None:
    """What a kubelet makes of a manifest before it runs it."""
    metadata, spec = pod["metadata"], pod["spec"]
    metadata["uid"] = uid = _hash(pod, node, path)
    metadata["name"] = f"{metadata['name']}-{node}"
    metadata.setdefault("namespace", "default")
    metadata["generation"] = 1
    told = {HASH: uid, MIRROR: uid, SOURCE: "file"}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **told}
    for name in ("ownerReferences", "finalizers", "resourceVersion", "deletionTimestamp"):
        metadata.pop(name, None)
    spec["nodeName"] = node
    tolerations = spec.get("tolerations") or []
    if _TOLERATION not in tolerations:
        spec["tolerations"] = [*tolerations, dict(_TOLERATION)]
    pod["status"] = {"phase": "Pending", "qosClass": qos.qos_class(pod)}


def _hash(pod: Object, node: str, path: Path) -> str:
    """Of all that it says, so that another version is another pod."""
    made = hashlib.blake2b(digest_size=16)
    made.update(msgspec.json.encode(pod, order="sorted"))
    made.update(f"host:{node}file:{path}".encode())
    return made.hexdigest()
