# SPDX-License-Identifier: Apache-2.0
"""Builds running programs from settings, clock and transport."""
