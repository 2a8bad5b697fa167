# SPDX-License-Identifier: Apache-2.0
"""Deletes what an owner leaves behind, or sets it free.

    known       what is known of all objects and who owns them, from their caches
    collector   two queues: objects whose owners may be gone, and owners that leave orphans

What becomes of an object is decided in `policy.ownership`.
"""
