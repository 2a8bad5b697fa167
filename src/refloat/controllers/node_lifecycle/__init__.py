# SPDX-License-Identifier: Apache-2.0
"""Detects silent nodes, and updates their conditions, taints and pods."""

from refloat.controllers.node_lifecycle.controller import build

__all__ = ["build"]
