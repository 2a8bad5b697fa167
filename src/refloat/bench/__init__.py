# SPDX-License-Identifier: Apache-2.0
"""The benchmarks behind `refloat bench`.

Each is a function that measures and returns rows; the command line prints
them. They say how fast this machine is today, and never decide a test.
"""
