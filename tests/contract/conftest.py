# SPDX-License-Identifier: Apache-2.0
"""The fixtures that the contract suites share."""

from tests.contract.stores import store

__all__ = ["store"]
