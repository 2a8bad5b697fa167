# SPDX-License-Identifier: Apache-2.0
"""The fixtures that the contract suites share."""

from tests.contract.clusters import cluster, refloat_up
from tests.contract.stores import store

__all__ = ["cluster", "refloat_up", "store"]
