# SPDX-License-Identifier: Apache-2.0
"""The inputs of a container: its environment, and the files of its volumes.

Pods are raw objects here, because this module reads their whole spec. It reads
ConfigMaps and Secrets when a container starts, and does not keep them. If one is
missing, the container waits with a kubelet's message. If the API server does not
answer, the error of `client.errors` goes to the caller, who retries.

    environment   CreateContainerConfigError, event Failed
    volumes       waiting as before any start, event FailedMount
"""

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from refloat.agent import downward_api
from refloat.agent.downward_api import FieldMissing, NodeValues
from refloat.agent.runtime import EventOnlyError, StartError
from refloat.agent.variable_expansion import expand
from refloat.api import fields, kinds
from refloat.api.meta import Object
from refloat.client import errors
from refloat.client.contract import Client, Kind
from refloat.policy.node import attach_detach

# Raw objects, because controllers decode fewer fields.
_KINDS: dict[str, Kind[Object]] = {
    "configMap": Kind(kinds.of("configmaps"), dict),
    "secret": Kind(kinds.of("secrets"), dict),
}

_CLAIMS: Kind[Object] = Kind(kinds.of("persistentvolumeclaims"), dict)
_VOLUMES: Kind[Object] = Kind(kinds.of("persistentvolumes"), dict)

_NO_KEY = {
    "configMap": "configmap references non-existent config key: ",
    "secret": "references non-existent secret key: ",
}

# The API server's default.
DEFAULT_MODE = 0o644

_SOURCES = ("configMap", "downwardAPI", "projected", "secret")


class ContainerConfigError(StartError):
    """The environment of a container cannot be built."""

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="CreateContainerConfigError")


class MountError(EventOnlyError):
    """A volume cannot be mounted."""

    event = "FailedMount"

    def __init__(self, volume: str, why: str) -> None:
        super().__init__(f"MountVolume.SetUp failed for volume {fields.quote(volume)} : {why}")


class _Missing(Exception):
    """An object or key that a pod names does not exist."""


@dataclass(frozen=True, slots=True)
class VolumeFile:
    """A file of a volume."""

    content: bytes
    mode: int = DEFAULT_MODE


class ContainerInputs:
    """Reads the inputs of a node's containers from the API."""

    def __init__(self, client: Client, place: NodeValues, volumes: Path) -> None:
        """`volumes` has a folder for each volume that nodes of this machine share."""
        self._client = client
        self._place = place
        self._volumes = volumes

    async def environment(self, pod: Object, container: Object) -> dict[str, str]:
        """The variables of `envFrom` and `env`, in order; raises `ContainerConfigError`."""
        references = _References(self._client, pod["metadata"]["namespace"])
        try:
            values: dict[str, str] = {}
            for each in container.get("envFrom") or ():
                prefix = each.get("prefix", "")
                for kind, key in (("configMap", "configMapRef"), ("secret", "secretRef")):
                    if (ref := each.get(key)) is not None:
                        data = (await references.find(kind, ref) or {}).get("data") or {}
                        values |= {prefix + name: _text(kind, text) for name, text in data.items()}
            for each in container.get("env") or ():
                value = await self._value(references, pod, container, each, values)
                if value is not None:
                    values[each["name"]] = value
        except (_Missing, FieldMissing) as error:
            raise ContainerConfigError(str(error)) from error
        return values

    async def files(self, pod: Object, volume: Object) -> dict[str, VolumeFile] | None:
        """The files of a volume by path; None for one of another kind. Raises `MountError`."""
        kind = next((each for each in _SOURCES if volume.get(each) is not None), None)
        if kind is None:
            return None
        references = _References(self._client, pod["metadata"]["namespace"])
        try:
            return await self._files(references, pod, kind, volume[kind])
        except (_Missing, FieldMissing) as error:
            raise MountError(volume["name"], str(error)) from error

    async def folder(self, pod: Object, volume: Object) -> Path | None:
        """The folder of a claim's volume; None for other volumes. Raises `MountError`."""
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if claim is None:
            return None
        try:
            source = await self._source(pod["metadata"]["namespace"], claim)
        except errors.NotFound as error:
            raise MountError(volume["name"], str(error)) from error
        if (host := source.get("hostPath")) is not None:
            return Path(host["path"])
        csi = source.get("csi") or {}
        if csi.get("driver") != attach_detach.DRIVER:
            why = "only hostPath, and csi by the driver " + attach_detach.DRIVER
            raise MountError(volume["name"], f"its kind is none of this runtime: {why}")
        # A handle may have characters that the name of a folder must not have.
        return self._volumes / quote(csi["volumeHandle"], safe="").replace(".", "%2E")

    async def _source(self, namespace: str, claim: str) -> Object:
        claim_object = await self._client.get(_CLAIMS, claim, namespace=namespace)
        volume = await self._client.get(_VOLUMES, claim_object["spec"].get("volumeName", ""))
        spec: Object = volume["spec"]
        return spec

    async def _value(
        self,
        references: "_References",
        pod: Object,
        container: Object,
        each: Object,
        values: dict[str, str],
    ) -> str | None:
        """The value of a variable; None for an optional variable without a value."""
        if text := each.get("value"):
            return expand(text, values)
        source = each.get("valueFrom") or {}
        if (ref := source.get("fieldRef")) is not None:
            return downward_api.field_value(pod, ref["fieldPath"], self._place)
        if (ref := source.get("resourceFieldRef")) is not None:
            return downward_api.resource_value(pod, container, ref, self._place)
        if (ref := source.get("configMapKeyRef")) is not None:
            return await references.text("configMap", ref)
        if (ref := source.get("secretKeyRef")) is not None:
            return await references.text("secret", ref)
        return ""

    async def _files(
        self, references: "_References", pod: Object, kind: str, source: Object
    ) -> dict[str, VolumeFile]:
        mode = source.get("defaultMode", DEFAULT_MODE)
        files: dict[str, VolumeFile] = {}
        if kind == "projected":  # all sources in one folder, without service account tokens
            for each in source.get("sources") or ():
                for part_kind in ("secret", "configMap", "downwardAPI"):
                    if (part := each.get(part_kind)) is not None:
                        part = {"secretName": part.get("name", ""), "defaultMode": mode, **part}
                        files |= await self._files(references, pod, part_kind, part)
            return files
        if kind == "downwardAPI":
            for item in source.get("items") or ():
                if (ref := item.get("fieldRef")) is not None:
                    text = downward_api.field_value(pod, ref["fieldPath"], self._place)
                else:
                    ref = item["resourceFieldRef"]
                    text = downward_api.resource_value(pod, {}, ref, self._place)
                files[item["path"]] = VolumeFile(text.encode(), item.get("mode", mode))
            return files
        name = source.get("secretName" if kind == "secret" else "name", "")
        obj = await references.find(kind, {**source, "name": name})
        return {} if obj is None else dict(_object_files(kind, obj, source, mode))


def _text(kind: str, value: str) -> str:
    """The value of a variable; `os.fsencode` gives back the same bytes, even invalid ones."""
    if kind == "configMap":
        return value
    return base64.b64decode(value).decode(errors="surrogateescape")


def _object_files(
    kind: str, obj: Object, source: Object, mode: int
) -> Iterator[tuple[str, VolumeFile]]:
    """The files of a volume from a ConfigMap or Secret, by path."""
    texts, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    if kind == "secret":
        texts, binary = {}, texts
    contents = {key: value.encode() for key, value in texts.items()}
    contents |= {key: base64.b64decode(value) for key, value in binary.items()}
    for item in source.get("items") or [{"key": key, "path": key} for key in contents]:
        key = item["key"]
        if key in contents:
            yield item["path"], VolumeFile(contents[key], item.get("mode", mode))
        elif not source.get("optional"):
            raise _Missing(_NO_KEY[kind] + key)


class _References:
    """The ConfigMaps and Secrets of one container or volume; reads each once."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._objects: dict[tuple[str, str], Object] = {}

    async def find(self, kind: str, ref: Object) -> Object | None:
        """The object of a reference; None for an optional object that does not exist."""
        name = ref.get("name", "")
        if (kind, name) not in self._objects:
            try:
                obj = await self._client.get(_KINDS[kind], name, namespace=self._namespace)
            except errors.NotFound as error:
                if ref.get("optional"):
                    return None
                raise _Missing(f"{kind.lower()} {fields.quote(name)} not found") from error
            self._objects[kind, name] = obj
        return self._objects[kind, name]

    async def text(self, kind: str, ref: Object) -> str | None:
        """The value of one key; None for an optional key that does not exist."""
        obj = await self.find(kind, ref)
        if obj is None:
            return None
        key = ref["key"]
        value = (obj.get("data") or {}).get(key)
        if value is not None:
            return _text(kind, value)
        if ref.get("optional"):
            return None
        title = kind[0].upper() + kind[1:]
        raise _Missing(f"couldn't find key {key} in {title} {self._namespace}/{ref.get('name')}")
