# SPDX-License-Identifier: Apache-2.0
"""Frees the pods and volumes of nodes that somebody says are down (KEP-36)."""
