# SPDX-License-Identifier: Apache-2.0
"""Zombie recovery and force eviction: when Refloat gives up pods of a lost node."""
