# SPDX-License-Identifier: Apache-2.0
"""What controllers read of leases (group coordination.k8s.io).

See `structs` for what holds for all structs.
"""

from refloat.api.structs import ApiObject, Own, Partial, Time

NODE_NAMESPACE = "kube-node-lease"
"""The namespace of the leases of nodes, which have the nodes' names."""


class LeaseSpec(Partial, frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: Time | None = None
    renew_time: Own | None = None
    lease_transitions: int | None = None


class Lease(ApiObject, frozen=True):
    spec: LeaseSpec = LeaseSpec()
