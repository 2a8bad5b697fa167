# SPDX-License-Identifier: Apache-2.0
"""Gives pods that have no node to one that has room."""
