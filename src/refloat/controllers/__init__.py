# SPDX-License-Identifier: Apache-2.0
"""The controllers: each observes, asks `refloat.policy`, and applies the decision.

Each controller has a package, and no controller knows another: they meet in the objects of
the API. Caches, queues and leadership are in `refloat.runtime`; `refloat.app` starts the
controllers.
"""
