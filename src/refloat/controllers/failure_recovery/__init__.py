# SPDX-License-Identifier: Apache-2.0
"""Frees pods that hang in Terminating on lost nodes, where everybody opted in (KEP-6757)."""
