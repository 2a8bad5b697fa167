# SPDX-License-Identifier: Apache-2.0
"""Gives pods that have no node to one that takes them, and makes room for the more important.

`scheduler` is the reconciler, `backlog` those who wait, `writes` what is asked
of the API. Every decision is made in `policy`: `cluster`, `fit`, `preemption`.
"""
