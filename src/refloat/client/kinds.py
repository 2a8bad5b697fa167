# SPDX-License-Identifier: Apache-2.0
"""The kinds that controllers use, each with its struct."""

from refloat.api import batch, coordination, core, events, kinds, policy, scheduling, storage
from refloat.api.structs import ApiObject
from refloat.client.contract import Kind

CONFIG_MAPS = Kind(kinds.of("configmaps"), core.ConfigMap)
CORE_EVENTS = Kind(kinds.of("events"), ApiObject)
"""For writing Events under the older names; controllers read `EVENTS`."""

EVENTS = Kind(kinds.of("events", "events.k8s.io"), events.Event)
JOBS = Kind(kinds.of("jobs", "batch"), batch.Job)
LEASES = Kind(kinds.of("leases", "coordination.k8s.io"), coordination.Lease)
NAMESPACES = Kind(kinds.of("namespaces"), core.Namespace)
NODES = Kind(kinds.of("nodes"), core.Node)
PERSISTENT_VOLUMES = Kind(kinds.of("persistentvolumes"), core.PersistentVolume)
PERSISTENT_VOLUME_CLAIMS = Kind(kinds.of("persistentvolumeclaims"), core.PersistentVolumeClaim)
PODS = Kind(kinds.of("pods"), core.Pod)
POD_DISRUPTION_BUDGETS = Kind(
    kinds.of("poddisruptionbudgets", "policy"), policy.PodDisruptionBudget
)
PRIORITY_CLASSES = Kind(kinds.of("priorityclasses", "scheduling.k8s.io"), scheduling.PriorityClass)
VOLUME_ATTACHMENTS = Kind(kinds.of("volumeattachments", "storage.k8s.io"), storage.VolumeAttachment)
