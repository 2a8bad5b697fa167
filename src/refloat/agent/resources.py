# SPDX-License-Identifier: Apache-2.0
"""What a container is given: its environment, and the files of its volumes.

Pods here are as the API has them, because what is read is the whole of their
spec. ConfigMaps and Secrets are asked for when a container starts and not kept.
What is missing is said in a kubelet's words and keeps the container waiting;
an API that does not answer raises `client.errors` and is tried again by
whoever asked.

    environment   CreateContainerConfigError, event Failed
    volumes       waiting as before any start, event FailedMount
"""

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from refloat.agent import downward
from refloat.agent.downward import FieldMissing, Place
from refloat.agent.expansion import expand
from refloat.agent.runtime import StartError
from refloat.api import fields, kinds
from refloat.api.meta import Object
from refloat.client import errors
from refloat.client.contract import Client, Kind
from refloat.policy import attach_detach

# Whole: controllers read less of them.
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

# What the API server sets where nobody says.
DEFAULT_MODE = 0o644

_SOURCES = ("configMap", "downwardAPI", "projected", "secret")


class ConfigError(StartError):
    """An environment that cannot be made."""

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="CreateContainerConfigError")


class MountError(StartError):
    """A volume that cannot be made; the container's state says nothing of it, an event does."""

    event = "FailedMount"

    def __init__(self, volume: str, why: str) -> None:
        text = f"MountVolume.SetUp failed for volume {fields.quote(volume)} : {why}"
        super().__init__(text, reason="")

    @property
    def note(self) -> str:
        return str(self)


class _Missing(Exception):
    """Something that a pod names is not there."""


@dataclass(frozen=True, slots=True)
class File:
    """A file of a volume."""

    content: bytes
    mode: int = DEFAULT_MODE


class Resources:
    """Asks the API for what the pods of a node name."""

    def __init__(self, client: Client, place: Place, volumes: Path) -> None:
        """`volumes` has a folder for each volume that nodes of this machine share."""
        self._client = client
        self._place = place
        self._volumes = volumes

    async def environment(self, pod: Object, container: Object) -> dict[str, str]:
        """All that `env` and `envFrom` say, in order; raises `ConfigError`."""
        asked = _Asked(self._client, pod["metadata"]["namespace"])
        try:
            values = await _imported(asked, container)
            for each in container.get("env") or ():
                value = await self._value(asked, pod, container, each, values)
                if value is not None:
                    values[each["name"]] = value
        except (_Missing, FieldMissing) as error:
            raise ConfigError(str(error)) from error
        return values

    async def files(self, pod: Object, volume: Object) -> dict[str, File] | None:
        """The files of a volume by path; None for one of another kind. Raises `MountError`."""
        kind = next((each for each in _SOURCES if volume.get(each) is not None), None)
        if kind is None:
            return None
        asked = _Asked(self._client, pod["metadata"]["namespace"])
        try:
            return await self._files(asked, pod, kind, volume[kind])
        except (_Missing, FieldMissing) as error:
            raise MountError(volume["name"], str(error)) from error

    async def folder(self, pod: Object, volume: Object) -> Path | None:
        """Where the files behind a claim are; None for a volume that is no claim. `MountError`."""
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
        # A handle is any text; a folder's name is not.
        return self._volumes / quote(csi["volumeHandle"], safe="").replace(".", "%2E")

    async def _source(self, namespace: str, claim: str) -> Object:
        held = await self._client.get(_CLAIMS, claim, namespace=namespace)
        volume = await self._client.get(_VOLUMES, held["spec"].get("volumeName", ""))
        spec: Object = volume["spec"]
        return spec

    async def _value(
        self, asked: "_Asked", pod: Object, container: Object, each: Object, known: dict[str, str]
    ) -> str | None:
        """The value of a variable; None for an optional one that is not there."""
        if text := each.get("value"):
            return expand(text, known)
        source = each.get("valueFrom") or {}
        if (ref := source.get("fieldRef")) is not None:
            return downward.field_value(pod, ref["fieldPath"], self._place)
        if (ref := source.get("resourceFieldRef")) is not None:
            return downward.resource_value(pod, container, ref, self._place)
        if (ref := source.get("configMapKeyRef")) is not None:
            return await asked.text("configMap", ref)
        if (ref := source.get("secretKeyRef")) is not None:
            return await asked.text("secret", ref)
        return ""

    async def _files(
        self, asked: "_Asked", pod: Object, kind: str, source: Object
    ) -> dict[str, File]:
        if kind == "projected":
            return await self._projected(asked, pod, source)
        mode = source.get("defaultMode", DEFAULT_MODE)
        if kind == "downwardAPI":
            return dict(self._told(pod, source, mode))
        name = source.get("secretName" if kind == "secret" else "name", "")
        found = await asked.find(kind, {**source, "name": name})
        return {} if found is None else dict(_chosen(kind, _contents(kind, found), source, mode))

    async def _projected(self, asked: "_Asked", pod: Object, source: Object) -> dict[str, File]:
        """All sources in one folder; a token is none of a process's and left out."""
        mode = source.get("defaultMode", DEFAULT_MODE)
        made: dict[str, File] = {}
        for each in source.get("sources") or ():
            for kind in ("secret", "configMap", "downwardAPI"):
                if (part := each.get(kind)) is not None:
                    named = {"secretName": part.get("name", ""), "defaultMode": mode, **part}
                    made |= await self._files(asked, pod, kind, named)
        return made

    def _told(self, pod: Object, source: Object, mode: int) -> Iterator[tuple[str, File]]:
        for item in source.get("items") or ():
            if (ref := item.get("fieldRef")) is not None:
                text = downward.field_value(pod, ref["fieldPath"], self._place)
            else:
                text = downward.resource_value(pod, {}, item["resourceFieldRef"], self._place)
            yield item["path"], File(text.encode(), item.get("mode", mode))


async def _imported(asked: "_Asked", container: Object) -> dict[str, str]:
    """The variables of `envFrom`; of two of one name the later counts."""
    values: dict[str, str] = {}
    for each in container.get("envFrom") or ():
        prefix = each.get("prefix", "")
        for kind, key in (("configMap", "configMapRef"), ("secret", "secretRef")):
            if (ref := each.get(key)) is not None:
                found = await asked.find(kind, ref)
                data = (found or {}).get("data") or {}
                values |= {prefix + name: _text(kind, held) for name, held in data.items()}
    return values


def _text(kind: str, held: str) -> str:
    """A value as a variable's; any bytes will do, `os.fsencode` makes them the same ones."""
    if kind == "configMap":
        return held
    return base64.b64decode(held).decode(errors="surrogateescape")


def _contents(kind: str, found: Object) -> dict[str, bytes]:
    """What an object holds, by key."""
    data = found.get("data") or {}
    if kind == "secret":
        return {key: base64.b64decode(value) for key, value in data.items()}
    binary = found.get("binaryData") or {}
    return {key: value.encode() for key, value in data.items()} | {
        key: base64.b64decode(value) for key, value in binary.items()
    }


def _chosen(
    kind: str, found: dict[str, bytes], source: Object, mode: int
) -> Iterator[tuple[str, File]]:
    """The keys that a volume shows, where and how it wants them."""
    items = source.get("items")
    if not items:
        yield from ((key, File(content, mode)) for key, content in found.items())
        return
    for item in items:
        key = item["key"]
        if key in found:
            yield item["path"], File(found[key], item.get("mode", mode))
        elif not source.get("optional"):
            raise _Missing(_NO_KEY[kind] + key)


class _Asked:
    """The ConfigMaps and Secrets that one container or volume names, each asked for once."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._held: dict[tuple[str, str], Object] = {}

    async def find(self, kind: str, ref: Object) -> Object | None:
        """The object that is referred to; None when it is optional and missing."""
        name = ref.get("name", "")
        if (kind, name) not in self._held:
            try:
                found = await self._client.get(_KINDS[kind], name, namespace=self._namespace)
            except errors.NotFound as error:
                if ref.get("optional"):
                    return None
                raise _Missing(f"{kind.lower()} {fields.quote(name)} not found") from error
            self._held[kind, name] = found
        return self._held[kind, name]

    async def text(self, kind: str, ref: Object) -> str | None:
        """The value of one key; None when it is optional and missing."""
        found = await self.find(kind, ref)
        if found is None:
            return None
        key = ref["key"]
        value = (found.get("data") or {}).get(key)
        if value is not None:
            return _text(kind, value)
        if ref.get("optional"):
            return None
        shown = kind[0].upper() + kind[1:]
        raise _Missing(f"couldn't find key {key} in {shown} {self._namespace}/{ref.get('name')}")
