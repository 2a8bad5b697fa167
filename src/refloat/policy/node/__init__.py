# SPDX-License-Identifier: Apache-2.0
"""One node: its health and taints, admission and eviction of pods, shutdown, volumes, phases."""
