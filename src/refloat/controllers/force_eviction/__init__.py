# SPDX-License-Identifier: Apache-2.0
"""Frees the pods and volumes of nodes that a taint declares down (KEP-36)."""

from refloat.controllers.force_eviction.controller import build

__all__ = ["build"]
