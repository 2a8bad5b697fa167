# SPDX-License-Identifier: Apache-2.0
"""The volumes behind the claims of a node's pods: which are in use, which are attached.

A node says in `volumesInUse` what it has mounted, and says so before it looks
whether the volume is attached: whoever detaches it looks the other way round
(`controllers.attach_detach`), so that they cannot miss each other. A volume that
is not attached to the node is not mounted. Where a volume's files are is the
runtime's business.
"""

from collections.abc import Callable, Iterable

from refloat.agent.runtime import StartError
from refloat.api import fields
from refloat.api.core import Node, PersistentVolume, Pod
from refloat.client import errors
from refloat.client.contract import Client
from refloat.client.kinds import NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from refloat.policy import attach_detach, force_eviction

# From one look to the next whether a volume is attached; as quick as a pod's start.
RETRY_SECONDS = 1.0


class NotMounted(StartError):
    """A volume that cannot be mounted yet; the container's state says nothing of it."""

    event = "FailedMount"
    retry_seconds = RETRY_SECONDS

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="")

    @property
    def note(self) -> str:
        return str(self)


class Claims:
    """Of one node."""

    def __init__(
        self,
        client: Client,
        node: str,
        *,
        active: Callable[[], Iterable[Pod]],
        is_active: Callable[[str], bool],
        holds: Callable[[str], bool],
        announce: Callable[[], object],
    ) -> None:
        """`active`: the pods that may have something mounted; `holds`: whether there is anything of
        a pod on the machine; `announce` has the node report."""
        self._client = client
        self._node = node
        self._active = active
        self._is_active = is_active
        self._holds = holds
        self._announce = announce
        self._names: dict[str, tuple[str, ...]] = {}  # uid -> what it has mounted, or is about to

    def in_use(self) -> tuple[str, ...] | None:
        """What the node has mounted; None while that is not known of all pods."""
        if any(_claims(pod) and pod.metadata.uid not in self._names for pod in self._active()):
            return None
        used = (
            each for uid, names in self._names.items() if self._is_active(uid) for each in names
        )
        return tuple(sorted(dict.fromkeys(used)))

    async def adopt(self, pod: Pod) -> None:
        """Find out what a pod has mounted that another agent started, or that has ended."""
        uid = pod.metadata.uid
        if not _claims(pod):
            return
        if uid in self._names:
            if not self._is_active(uid):
                del self._names[uid]
                self._announce()
        elif self._is_active(uid):
            self._names[uid] = await self._mounted(pod) if self._holds(uid) else ()
            self._announce()

    async def _mounted(self, pod: Pod) -> tuple[str, ...]:
        try:
            return await self._resolve(pod)
        except NotMounted:
            return ()  # what has no volume any more has none in use

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        if self._names.pop(uid, None):
            self._announce()

    async def mount(self, pod: Pod) -> None:
        """Say that its volumes are in use, then see whether they are attached; `NotMounted`."""
        if not _claims(pod):
            return
        names = await self._resolve(pod)
        self._names[pod.metadata.uid] = names
        if not names:
            return
        node = await self._client.get(NODES, self._node)
        if not set(names) <= set(node.status.volumes_in_use or ()):
            node = await self._say(names)
        attached = {each.name for each in node.status.volumes_attached or ()}
        for name in names:
            if name not in attached:
                handle = name.rpartition("^")[2]
                raise NotMounted(
                    f"AttachVolume.Attach failed for volume {fields.quote(handle)} : "
                    f"it is not attached to node {self._node}"
                )

    async def _say(self, names: tuple[str, ...]) -> Node:
        used = dict.fromkeys([*(self.in_use() or ()), *names])
        return await self._client.patch(
            NODES,
            self._node,
            {"status": {"volumesInUse": sorted(used)}},
            patch_type="strategic",
            subresource="status",
        )

    async def _resolve(self, pod: Pod) -> tuple[str, ...]:
        """The volumes behind its claims that are attached to nodes, by their names on nodes."""
        found = []
        for name in _claims(pod):
            volume = await self._volume(pod.metadata.namespace, name)
            found.append(attach_detach.unique_name(volume))
        return tuple(each for each in found if each)

    async def _volume(self, namespace: str, claim: str) -> PersistentVolume:
        try:
            held = await self._client.get(PERSISTENT_VOLUME_CLAIMS, claim, namespace=namespace)
        except errors.NotFound as error:
            text = f"persistentvolumeclaim {fields.quote(claim)} not found"
            raise NotMounted(text) from error
        if held.status.phase != "Bound":
            raise NotMounted(f"persistentvolumeclaim {fields.quote(claim)} is not bound yet")
        try:
            return await self._client.get(PERSISTENT_VOLUMES, held.spec.volume_name)
        except errors.NotFound as error:
            text = f"persistentvolume {fields.quote(held.spec.volume_name)} not found"
            raise NotMounted(text) from error


def _claims(pod: Pod) -> list[str]:
    return force_eviction.claims(pod) if pod.spec.volumes else []
