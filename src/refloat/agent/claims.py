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
from refloat.runtime import statuses

# From one look to the next whether a volume is attached; as quick as a pod's start.
RETRY_SECONDS = 1.0

# So often a node is read again that others changed before it could say what it uses: as
# often as a kubelet tries to write its status. The pod's next look tries again.
SAY_ATTEMPTS = 5


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
        has_strays: Callable[[], bool],
        announce: Callable[[], object],
    ) -> None:
        """`active`: the pods that may have something mounted; `holds`: whether there is anything of
        a pod on the machine; `has_strays`: whether containers live of which nobody knows the pod,
        nor what it has mounted; `announce` has the node report."""
        self._client = client
        self._node = node
        self._active = active
        self._is_active = is_active
        self._holds = holds
        self._has_strays = has_strays
        self._announce = announce
        self._names: dict[str, tuple[str, ...]] = {}  # uid -> what it has mounted, or is about to
        self._leaving: dict[str, None] = {}  # those whose object went before their containers

    def in_use(self) -> tuple[str, ...] | None:
        """What the node has mounted; None while that is not known of all pods."""
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
        """Of one that runs: what its claims say, and if they do not, all that it can be.

        A claim or a volume that was deleted is mounted as before. Which of the node's it
        was, nobody says any more, so all of them stay in use until the pod has ended.
        """
        try:
            return await self._resolve(pod)
        except NotMounted:
            node = await self._client.get(NODES, self._node)
            return tuple(node.status.volumes_in_use or ())

    def forget(self, uid: str) -> None:
        """The pod's object is gone; what it has mounted stays so while it has containers."""
        if self._holds(uid):
            self._leaving[uid] = None
            return
        names, left = self._names.pop(uid, None), uid in self._leaving
        self._leaving.pop(uid, None)
        if names or left:
            self._announce()

    async def mount(self, pod: Pod) -> None:
        """Say that its volumes are in use, then see whether they are attached; `NotMounted`."""
        if not _claims(pod):
            return
        names, uid = await self._resolve(pod), pod.metadata.uid
        # A claim may be another by now; what containers that live have mounted is not.
        kept = self._names.get(uid, ()) if self._holds(uid) else ()
        self._names[uid] = tuple(dict.fromkeys((*kept, *names)))
        if not names:
            return
        node = await self._said(names)
        attached = {each.name for each in node.status.volumes_attached or ()}
        for name in names:
            if name not in attached:
                handle = name.rpartition("^")[2]
                raise NotMounted(
                    f"AttachVolume.Attach failed for volume {fields.quote(handle)} : "
                    f"it is not attached to node {self._node}"
                )

    async def _said(self, names: tuple[str, ...]) -> Node:
        """The node, once it says that these are in use."""
        for _ in range(SAY_ATTEMPTS):
            node = await self._client.get(NODES, self._node)
            if set(names) <= set(node.status.volumes_in_use or ()):
                return node
            try:
                return await self._say(node, names)
            except errors.Conflict:
                continue
        raise NotMounted(f"node {self._node} was changed by others at the same time")

    async def _say(self, node: Node, names: tuple[str, ...]) -> Node:
        """Of the version that was read only: another may say more."""
        before = () if self._is_sure() else node.status.volumes_in_use or ()
        used = sorted({*before, *self._known(), *names})
        return await statuses.patch(
            self._client, NODES, node, {"volumesInUse": used}, unchanged=True
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
