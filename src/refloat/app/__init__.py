# SPDX-License-Identifier: Apache-2.0
"""Composition: settings, clock and transport become a running whole."""
