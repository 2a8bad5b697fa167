# SPDX-License-Identifier: Apache-2.0
"""How pods fail: what KEP-3329 reviews, done to real processes.

Each scenario is a story of its own. It does to a Job's pod what the KEP says,
and looks at what is left of pod and Job; where that is not what the KEP says,
the scenario knows what it is instead, and why. docs/failures.md is made of
the same scenarios.
"""
