# SPDX-License-Identifier: Apache-2.0
"""Deletes objects whose owners are gone, or releases them from their owners.

    owner_graph   the objects in the caches and their owners
    collector     two queues: objects whose owners may be gone, and owners that leave orphans

`policy.garbage.ownership` decides about each object.
"""

from refloat.controllers.garbage.collector import build

__all__ = ["build"]
