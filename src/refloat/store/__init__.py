# SPDX-License-Identifier: Apache-2.0
"""A log of revisions with the current state on top, in memory or in SQLite.

It knows keys and bytes, and no Kubernetes type.
"""
