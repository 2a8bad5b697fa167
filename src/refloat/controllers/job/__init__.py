# SPDX-License-Identifier: Apache-2.0
"""The Job controller: creates pods for Jobs, and counts how they end (behaviour part A).

`controller` queues Jobs, `sync` processes one Job in the order of behaviour A4 and A5.
`pod_adoption` finds the pods of a Job, `writes` sends requests, `create_batches`,
`pod_template` and `pod_names` make new pods. `sync_memory` is all that the controller
remembers between syncs; nothing of it is needed after a restart. `orphans` frees pods that
no Job will count any more. All decisions are in `refloat.policy`.
"""

from refloat.controllers.job.controller import build

__all__ = ["build"]
