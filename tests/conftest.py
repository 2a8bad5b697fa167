# SPDX-License-Identifier: Apache-2.0
"""What holds for all tests.

Properties are tried on the same examples in every run, however slow the
machine is, so that a red run means a change. `REFLOAT_EXPLORE=1 pytest ...`
looks for new ones.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "refloat",
    deadline=None,
    derandomize=not os.environ.get("REFLOAT_EXPLORE"),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("refloat")
