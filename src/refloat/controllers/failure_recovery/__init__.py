# SPDX-License-Identifier: Apache-2.0
"""Zombie recovery: frees pods that hang in Terminating on unreachable nodes (KEP-6757)."""

from refloat.controllers.failure_recovery.controller import build

__all__ = ["build"]
