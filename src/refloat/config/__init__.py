# SPDX-License-Identifier: Apache-2.0
"""The configuration file: loaded, checked with field paths, frozen."""
