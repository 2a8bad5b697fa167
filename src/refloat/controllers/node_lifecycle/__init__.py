# SPDX-License-Identifier: Apache-2.0
"""Notices nodes that are silent, and says so on them, in taints and on their pods."""
