# SPDX-License-Identifier: Apache-2.0
"""Situations in which a Job, pod or node is stuck or has ended, and what explain says of each.

`table` lists them. `play` creates them on a cluster, all at once, and runs `refloat explain`.
"""
