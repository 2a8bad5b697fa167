# SPDX-License-Identifier: Apache-2.0
"""The volumes of a node's claims: reports those in use, and mounts only attached ones.

A node reports its mounted volumes in `volumesInUse`. The node writes that report first
and then checks whether the volume is attached. `controllers.attach_detach` detaches
first and then checks the report, so they cannot miss each other. The runtime finds the
files of a volume.
"""

import contextlib
from collections.abc import Callable, Iterable

from refloat.agent.runtime import EventOnlyError
from refloat.api import fields
from refloat.api.core import Node, Pod
from refloat.client import errors
from refloat.client.contract import Client
from refloat.client.kinds import NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from refloat.policy.node import attach_detach
from refloat.policy.recovery import force_eviction
from refloat.runtime import status_writes

# Seconds between two checks whether a volume is attached.
RETRY_SECONDS = 1.0

# The most writes of `volumesInUse` after conflicts: a kubelet's number for its status. The
# next sync of the pod tries again.
REPORT_ATTEMPTS = 5


class NotMounted(EventOnlyError):
    """A volume cannot be mounted yet."""

    event = "FailedMount"
    retry_seconds = RETRY_SECONDS


class VolumeClaims:
    """The volumes of the claims of one node."""

    def __init__(
        self,
        client: Client,
        node: str,
        *,
        active: Callable[[], Iterable[Pod]],
        is_active: Callable[[str], bool],
        holds: Callable[[str], bool],
        has_strays: Callable[[], bool],
        announce: Callable[[], object],
    ) -> None:
        """`active` returns the pods that may have mounts; `holds`: whether a pod has containers;
        `has_strays`: whether containers live whose pod, and whose mounts, are unknown; `announce`
        makes the node report."""
        self._client = client
        self._node = node
        self._active = active
        self._is_active = is_active
        self._holds = holds
        self._has_strays = has_strays
        self._announce = announce
        self._names: dict[str, tuple[str, ...]] = {}  # volumes by uid, also those to mount next
        self._leaving: dict[str, None] = {}  # pods whose object went before their containers

    def in_use(self) -> tuple[str, ...] | None:
        """The volumes in use; None while the mounts of a pod are not known."""
        return self._known() if self._is_sure() else None

    def _is_sure(self) -> bool:
        if any(_claims(pod) and pod.metadata.uid not in self._names for pod in self._active()):
            return False
        return not self._has_strays()

    def _known(self) -> tuple[str, ...]:
        used = (
            each for uid, names in self._names.items() if self._is_active(uid) for each in names
        )
        return tuple(sorted(dict.fromkeys(used)))

    async def adopt(self, pod: Pod) -> None:
        """Find the mounts of a pod that an earlier agent started, or drop those of an ended pod."""
        uid = pod.metadata.uid
        if not _claims(pod):
            return
        if uid in self._names:
            if not self._is_active(uid):
                del self._names[uid]
                self._announce()
        elif self._is_active(uid):
            names: tuple[str, ...] = ()
            if self._holds(uid):
                try:
                    names = await self._resolve(pod)
                except NotMounted:
                    # A deleted claim or volume is still mounted, but its name is not known. So
                    # all volumes of the node stay in use until the pod has ended.
                    node = await self._client.get(NODES, self._node)
                    names = tuple(node.status.volumes_in_use or ())
            self._names[uid] = names
            self._announce()

    def forget(self, uid: str) -> None:
        """Drop the mounts of a pod without an object, once its containers have ended."""
        if self._holds(uid):
            self._leaving[uid] = None
            return
        names, was_leaving = self._names.pop(uid, None), uid in self._leaving
        self._leaving.pop(uid, None)
        if names or was_leaving:
            self._announce()

    async def mount(self, pod: Pod) -> None:
        """Report the pod's volumes as in use, then check that they are attached; `NotMounted`."""
        if not _claims(pod):
            return
        names, uid = await self._resolve(pod), pod.metadata.uid
        # A claim may have another volume by now, but live containers keep their mounts.
        before = self._names.get(uid, ()) if self._holds(uid) else ()
        self._names[uid] = tuple(dict.fromkeys((*before, *names)))
        if not names:
            return
        node = await self._report(names)
        attached = {each.name for each in node.status.volumes_attached or ()}
        for name in names:
            if name not in attached:
                handle = name.rpartition("^")[2]
                raise NotMounted(
                    f"AttachVolume.Attach failed for volume {fields.quote(handle)} : "
                    f"it is not attached to node {self._node}"
                )

    async def _report(self, names: tuple[str, ...]) -> Node:
        """Write `volumesInUse` unless the node lists the volumes. Returns the Node."""
        for _ in range(REPORT_ATTEMPTS):
            node = await self._client.get(NODES, self._node)
            before = node.status.volumes_in_use or ()
            if set(names) <= set(before):
                return node
            used = sorted({*(() if self._is_sure() else before), *self._known(), *names})
            # Only on this version, because another one may list more volumes.
            with contextlib.suppress(errors.Conflict):
                return await status_writes.patch(
                    self._client, NODES, node, {"volumesInUse": used}, unchanged=True
                )
        raise NotMounted(f"node {self._node} was changed by others at the same time")

    async def _resolve(self, pod: Pod) -> tuple[str, ...]:
        """The attachable volumes of a pod's claims, by their names on nodes."""
        names, namespace = [], pod.metadata.namespace
        for name in _claims(pod):
            what = f"persistentvolumeclaim {fields.quote(name)}"
            try:
                claim = await self._client.get(PERSISTENT_VOLUME_CLAIMS, name, namespace=namespace)
                if claim.status.phase != "Bound":
                    raise NotMounted(f"{what} is not bound yet")
                what = f"persistentvolume {fields.quote(claim.spec.volume_name)}"
                volume = await self._client.get(PERSISTENT_VOLUMES, claim.spec.volume_name)
            except errors.NotFound as error:
                raise NotMounted(f"{what} not found") from error
            names.append(attach_detach.unique_name(volume))
        return tuple(each for each in names if each)


def _claims(pod: Pod) -> list[str]:
    return force_eviction.claims(pod) if pod.spec.volumes else []
