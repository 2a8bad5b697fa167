# SPDX-License-Identifier: Apache-2.0
"""Binds pods to nodes, and preempts pods for more important ones.

`scheduler` is the reconciler, `unschedulable_pods` has the pods that wait, `scheduler_cache`
the nodes, and `writes` the requests. All decisions are made in `policy.scheduling`.
"""

from refloat.controllers.scheduler.scheduler import build

__all__ = ["build"]
