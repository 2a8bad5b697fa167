# SPDX-License-Identifier: Apache-2.0
"""Binds claims to volumes where either names the other.

Nothing is chosen and nothing is made: that takes storage classes, which are not
here. A claim that names no volume, and that no volume names, stays Pending.
"""

import logging

from refloat.api.core import PersistentVolume, PersistentVolumeClaim
from refloat.api.meta import Object
from refloat.base.clock import Clock
from refloat.client import kinds
from refloat.client.contract import Client
from refloat.runtime import statuses
from refloat.runtime.cache import key_of
from refloat.runtime.controller import Controller, Instruments
from refloat.runtime.event_series import Reference
from refloat.runtime.index import Index
from refloat.runtime.informer import Informer
from refloat.runtime.reconcile import DONE, Result
from refloat.runtime.recorder import Sink

log = logging.getLogger(__name__)

NAME = "persistentvolume-binder-controller"

# Who tells; Kubernetes' name for it.
COMPONENT = "persistentvolume-controller"


def _claimed(volume: PersistentVolume) -> tuple[str, ...]:
    claim = volume.spec.claim_ref
    return () if claim is None else (f"{claim.namespace}/{claim.name}",)


BY_CLAIM: Index[PersistentVolume] = Index("claim", _claimed)
BY_VOLUME: Index[PersistentVolumeClaim] = Index("volume", lambda each: (each.spec.volume_name,))


class VolumeBinding:
    """The reconciler, and the controller around it; a key is a claim's, or a volume's name."""

    def __init__(
        self,
        client: Client,
        claims: Informer[PersistentVolumeClaim],
        volumes: Informer[PersistentVolume],
        *,
        clock: Clock,
        sink: Sink,
        instruments: Instruments,
    ) -> None:
        """The informer of volumes must have `BY_CLAIM`, that of claims `BY_VOLUME`."""
        self._client = client
        self._claims = claims.cache
        self._volumes = volumes.cache
        self._sink = sink
        self.controller: Controller[str] = Controller(
            NAME, self, clock=clock, instruments=instruments
        )
        claims.add_handler(self._saw_claim)
        volumes.add_handler(self._saw_volume)

    def _saw_claim(
        self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None
    ) -> None:
        claim = new if new is not None else old
        assert claim is not None
        self.controller.queue.add(key_of(claim))
        if new is None:
            for volume in self._volumes.by(BY_CLAIM, key_of(claim)):
                self.controller.queue.add(volume.metadata.name)

    def _saw_volume(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        if new is None:
            return
        self.controller.queue.add(new.metadata.name)
        for key in _claimed(new):
            self.controller.queue.add(key)
        if new.spec.claim_ref is None:
            for claim in self._claims.by(BY_VOLUME, new.metadata.name):
                self.controller.queue.add(key_of(claim))

    async def reconcile(self, key: str) -> Result:
        if "/" not in key:
            await self._settle(key)
            return DONE
        claim = self._claims.get(key)
        volume = None if claim is None else self._volume_of(claim)
        if claim is None or volume is None or claim.metadata.deletion_timestamp is not None:
            return DONE
        if (why := _mismatch(claim, volume)) is not None:
            about = Reference.of(kinds.PERSISTENT_VOLUME_CLAIMS, claim)
            self._sink.event(about, "Warning", "FailedBinding", "Bind", why)
            return DONE
        await self._bind(claim, volume)
        return DONE

    def _volume_of(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        if claim.spec.volume_name:
            return self._volumes.get(claim.spec.volume_name)
        return next(iter(self._volumes.by(BY_CLAIM, key_of(claim))), None)

    async def _settle(self, name: str) -> None:
        """A volume that nobody claims is free; one whose claim is gone is left as it is."""
        volume = self._volumes.get(name)
        if volume is None:
            return
        claim = volume.spec.claim_ref
        held = None if claim is None else self._claims.get(f"{claim.namespace}/{claim.name}")
        phase = volume.status.phase
        if claim is None:
            phase = "Available"
        elif claim.uid and (held is None or held.metadata.uid != claim.uid):
            phase = "Released"
        if phase != volume.status.phase:
            status = {"phase": phase}
            await statuses.patch(self._client, kinds.PERSISTENT_VOLUMES, volume, status)

    async def _bind(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        """The volume first, on this very version: it may be claimed once."""
        meta, held = claim.metadata, volume.spec.claim_ref
        if held is None or held.uid != meta.uid:
            reference = {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": meta.namespace,
                "name": meta.name,
                "uid": meta.uid,
            }
            volume = await self._client.patch(
                kinds.PERSISTENT_VOLUMES,
                volume.metadata.name,
                {**_guard(volume), "spec": {"claimRef": reference}},
            )
        if volume.status.phase != "Bound":
            status: Object = {"phase": "Bound"}
            await statuses.patch(self._client, kinds.PERSISTENT_VOLUMES, volume, status)
        if not claim.spec.volume_name:
            claim = await self._client.patch(
                kinds.PERSISTENT_VOLUME_CLAIMS,
                meta.name,
                {**_guard(claim), "spec": {"volumeName": volume.metadata.name}},
                namespace=meta.namespace,
            )
        if claim.status.phase != "Bound":
            status = {
                "phase": "Bound",
                "accessModes": list(volume.spec.access_modes or ()),
                "capacity": dict(volume.spec.capacity or {}),
            }
            await statuses.patch(self._client, kinds.PERSISTENT_VOLUME_CLAIMS, claim, status)
        name = volume.metadata.name
        log.debug("%s: claim %s/%s has volume %s", COMPONENT, meta.namespace, meta.name, name)


def _guard(obj: PersistentVolume | PersistentVolumeClaim) -> Object:
    meta = obj.metadata
    return {"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version}}


def _mismatch(claim: PersistentVolumeClaim, volume: PersistentVolume) -> str | None:
    """Why the two cannot be bound."""
    held, meta, name = volume.spec.claim_ref, claim.metadata, volume.metadata.name
    if held is not None:
        same = (held.namespace, held.name) == (meta.namespace, meta.name)
        if not same or (held.uid and held.uid != meta.uid):
            return f'volume "{name}" already bound to a different claim.'
    offered = volume.spec.access_modes or ()
    if any(mode not in offered for mode in claim.spec.access_modes or ()):
        return f'Cannot bind to requested volume "{name}": incompatible accessMode'
    return None
