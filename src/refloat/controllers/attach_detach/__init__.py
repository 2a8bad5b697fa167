# SPDX-License-Identifier: Apache-2.0
"""Attaches volumes to the nodes whose pods need them, and detaches them again."""

from refloat.controllers.attach_detach.controller import build

__all__ = ["build"]
