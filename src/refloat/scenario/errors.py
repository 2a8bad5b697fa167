# SPDX-License-Identifier: Apache-2.0
"""The errors of scenarios.

RefloatError
└── ConditionTimeout    a condition did not become true in time; the text has the state
"""

from refloat.base.errors import RefloatError


class ConditionTimeout(RefloatError):
    """The cluster did not reach a state that the scenario waits for."""
