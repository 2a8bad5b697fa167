# SPDX-License-Identifier: Apache-2.0
"""The base of every controller: informers, queues, reconciling, leadership.

The words are those of controller-runtime: a request is a key, a result is "again
after", and the class of an error decides whether to try again. Everything is
level-based: a reconcile reads the present state, never the event that woke it.
"""
