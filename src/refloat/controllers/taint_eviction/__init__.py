# SPDX-License-Identifier: Apache-2.0
"""Deletes pods from nodes with NoExecute taints, at once or when their time is over."""

from refloat.controllers.taint_eviction.controller import build

__all__ = ["build"]
