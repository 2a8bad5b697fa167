# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes-compatible API server: its HTTP face and its resource rules.

What an object is stands in `refloat.api`; how it is kept, in `refloat.store`.
Nothing here decides what a failure means (see `refloat.policy`).
"""
