# SPDX-License-Identifier: Apache-2.0
"""What controllers read of pods, nodes and their like (group core).

The union over all controllers: a field is added here when one of them needs
it. See `structs` for what holds for all of them.
"""

import msgspec

from refloat.api.structs import (
    ApiObject,
    Conditions,
    Map,
    Own,
    Partial,
    Texts,
    Time,
)

# Phases of a pod.
PENDING, RUNNING, SUCCEEDED, FAILED, UNKNOWN = (
    "Pending",
    "Running",
    "Succeeded",
    "Failed",
    "Unknown",
)


class Resources(Partial, frozen=True):
    requests: Map | None = None
    limits: Map | None = None


class ContainerPort(Partial, frozen=True):
    """Of interest only with a port of the node."""

    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = ""


class ExitCodes(Partial, frozen=True):
    operator: str = ""
    values: tuple[int, ...] | None = None


class RestartRule(Partial, frozen=True):
    exit_codes: ExitCodes | None = None


class Container(Partial, frozen=True):
    name: str = ""
    image: str = ""
    restart_policy: str | None = None  # Always: an init container that runs on, a sidecar
    restart_policy_rules: tuple[RestartRule, ...] | None = None
    resources: Resources = Resources()
    ports: tuple[ContainerPort, ...] | None = None


class Toleration(Partial, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class SchedulingGate(Partial, frozen=True):
    name: str = ""


class ClaimSource(Partial, frozen=True):
    claim_name: str = ""
    read_only: bool = False


class Volume(Partial, frozen=True):
    """Without the name, which differs for each pod, so that pods can share the object."""

    persistent_volume_claim: ClaimSource | None = None


class PodSpec(Partial, frozen=True):
    node_name: str = ""
    restart_policy: str = ""
    scheduler_name: str = ""
    hostname: str = ""
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    resources: Resources | None = None
    overhead: Map | None = None
    tolerations: tuple[Toleration, ...] | None = None
    node_selector: Map | None = None
    affinity: msgspec.Raw = msgspec.Raw()
    topology_spread_constraints: msgspec.Raw = msgspec.Raw()
    scheduling_gates: tuple[SchedulingGate, ...] | None = None
    volumes: tuple[Volume, ...] | None = None


class Terminated(Partial, frozen=True):
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    started_at: Time | None = None
    finished_at: Time | None = None


class Running(Partial, frozen=True):
    started_at: Time | None = None


class Waiting(Partial, frozen=True):
    reason: str = ""


class ContainerState(Partial, frozen=True):
    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Partial, frozen=True):
    name: str = ""
    state: ContainerState = ContainerState()
    ready: bool = False
    restart_count: int = 0


class PodStatus(Partial, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    nominated_node_name: str = ""
    observed_generation: int = 0
    start_time: Time | None = None
    pod_ip: Own = msgspec.field(default="", name="podIP")
    conditions: Conditions = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None


class Pod(ApiObject, frozen=True):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_terminal(self) -> bool:
        return self.status.phase in (SUCCEEDED, FAILED)

    @property
    def is_terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None


class Taint(Partial, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: Time | None = None


class NodeSpec(Partial, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] | None = None


class NodeAddress(Partial, frozen=True):
    type: str = ""
    address: str = ""


class AttachedVolume(Partial, frozen=True):
    name: str = ""
    device_path: str = ""


class NodeStatus(Partial, frozen=True):
    capacity: Map | None = None
    allocatable: Map | None = None
    conditions: Conditions = None
    addresses: tuple[NodeAddress, ...] | None = None
    volumes_in_use: Texts | None = None
    volumes_attached: tuple[AttachedVolume, ...] | None = None


class Node(ApiObject, frozen=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class NamespaceSpec(Partial, frozen=True):
    finalizers: Texts | None = None


class NamespaceStatus(Partial, frozen=True):
    phase: str = ""
    conditions: Conditions = None


class Namespace(ApiObject, frozen=True):
    spec: NamespaceSpec = NamespaceSpec()
    status: NamespaceStatus = NamespaceStatus()


class ConfigMap(ApiObject, frozen=True):
    data: Map | None = None


class ClaimSpec(Partial, frozen=True):
    volume_name: str = ""
    access_modes: Texts | None = None
    storage_class_name: str | None = None


class ClaimStatus(Partial, frozen=True):
    phase: str = ""


class PersistentVolumeClaim(ApiObject, frozen=True):
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class ClaimReference(Partial, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class CsiSource(Partial, frozen=True):
    driver: str = ""
    volume_handle: Own = ""


class VolumeSpec(Partial, frozen=True):
    capacity: Map | None = None
    csi: CsiSource | None = None
    access_modes: Texts | None = None
    claim_ref: ClaimReference | None = None
    storage_class_name: str = ""


class VolumeStatus(Partial, frozen=True):
    phase: str = ""


class PersistentVolume(ApiObject, frozen=True):
    spec: VolumeSpec = VolumeSpec()
    status: VolumeStatus = VolumeStatus()
