# SPDX-License-Identifier: Apache-2.0
"""Binds claims to volumes where one of them names the other.

Refloat has no storage classes, so this controller neither chooses nor creates volumes. A claim
without a volume name, and that no volume names, stays Pending.
"""

import logging
from collections.abc import Sequence

from refloat.api.core import PersistentVolume, PersistentVolumeClaim
from refloat.api.meta import Object
from refloat.base.clock import Clock
from refloat.client import kinds
from refloat.client.contract import Client
from refloat.runtime import status_writes
from refloat.runtime.cache import key_of
from refloat.runtime.controller import Controller, Instruments
from refloat.runtime.controller_env import ControllerEnv
from refloat.runtime.event_series import Reference
from refloat.runtime.index import Index
from refloat.runtime.informer import Change, Informer
from refloat.runtime.manager import Worker
from refloat.runtime.reconcile import DONE, Result
from refloat.runtime.recorder import Sink

log = logging.getLogger(__name__)

NAME = "persistentvolume-binder-controller"

# The source of the events, as in Kubernetes.
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
        claims.add_handler(self._claim_changed)
        volumes.add_handler(self._volume_changed)

    def _claim_changed(self, change: Change[PersistentVolumeClaim]) -> None:
        key = key_of(change.current)
        self.controller.queue.add(key)
        if change.new is None:
            for volume in self._volumes.by(BY_CLAIM, key):
                self.controller.queue.add(volume.metadata.name)

    def _volume_changed(self, change: Change[PersistentVolume]) -> None:
        new = change.new
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
        if claim is None:
            return DONE
        if claim.spec.volume_name:
            volume = self._volumes.get(claim.spec.volume_name)
        else:
            volume = next(iter(self._volumes.by(BY_CLAIM, key)), None)
        if volume is None or claim.metadata.deletion_timestamp is not None:
            return DONE
        if (why := _mismatch(claim, volume)) is not None:
            about = Reference.of(kinds.PERSISTENT_VOLUME_CLAIMS, claim)
            self._sink.event(about, "Warning", "FailedBinding", "Bind", why)
            return DONE
        await self._bind(claim, volume)
        return DONE

    async def _settle(self, name: str) -> None:
        """Set the phase of a volume: Available without a claim, Released after its deletion."""
        volume = self._volumes.get(name)
        if volume is None:
            return
        claim = volume.spec.claim_ref
        claim_object = (
            None if claim is None else self._claims.get(f"{claim.namespace}/{claim.name}")
        )
        phase = volume.status.phase
        if claim is None:
            phase = "Available"
        elif claim.uid and (claim_object is None or claim_object.metadata.uid != claim.uid):
            phase = "Released"
        if phase != volume.status.phase:
            status = {"phase": phase}
            await status_writes.patch(self._client, kinds.PERSISTENT_VOLUMES, volume, status)

    async def _bind(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        """Bind the volume first, in this version, because only one claim may have it."""
        meta, claim_ref = claim.metadata, volume.spec.claim_ref
        if claim_ref is None or claim_ref.uid != meta.uid:
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
            await status_writes.patch(self._client, kinds.PERSISTENT_VOLUMES, volume, status)
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
            await status_writes.patch(self._client, kinds.PERSISTENT_VOLUME_CLAIMS, claim, status)
        name = volume.metadata.name
        log.debug("%s: claim %s/%s has volume %s", COMPONENT, meta.namespace, meta.name, name)


def _guard(obj: PersistentVolume | PersistentVolumeClaim) -> Object:
    meta = obj.metadata
    return {"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version}}


def _mismatch(claim: PersistentVolumeClaim, volume: PersistentVolume) -> str | None:
    """Why the two cannot be bound."""
    claim_ref, meta, name = volume.spec.claim_ref, claim.metadata, volume.metadata.name
    if claim_ref is not None:
        same = (claim_ref.namespace, claim_ref.name) == (meta.namespace, meta.name)
        if not same or (claim_ref.uid and claim_ref.uid != meta.uid):
            return f'volume "{name}" already bound to a different claim.'
    offered = volume.spec.access_modes or ()
    if any(mode not in offered for mode in claim.spec.access_modes or ()):
        return f'Cannot bind to requested volume "{name}": incompatible accessMode'
    return None


def build(env: ControllerEnv) -> Sequence[Worker]:
    client = env.client("persistent-volume-binder")
    binding = VolumeBinding(
        client,
        env.informer(kinds.PERSISTENT_VOLUME_CLAIMS, BY_VOLUME),
        env.informer(kinds.PERSISTENT_VOLUMES, BY_CLAIM),
        clock=env.clock,
        sink=env.recorder(client, COMPONENT),
        instruments=env.instruments,
    )
    return [binding.controller]
