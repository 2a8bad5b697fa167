# SPDX-License-Identifier: Apache-2.0
"""The benchmarks behind `refloat bench`.

Each module has a function `measure` that returns rows; the command line prints the
rows. The figures depend on the machine and its load, so no test depends on them.
"""
