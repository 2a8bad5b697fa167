# SPDX-License-Identifier: Apache-2.0
"""Virtual time: a program in it has one history for each seed.

Nothing here knows what it runs; `tests/simulation` has programs.
"""
