# SPDX-License-Identifier: Apache-2.0
"""Failure recovery for Kubernetes batch Jobs."""

__version__ = "0.1.0"
