# SPDX-License-Identifier: Apache-2.0
"""What every controller stands on: informers, queues, reconciling, leadership.

The vocabulary is controller-runtime's: a request is a key, a result is "again
after", errors say whether to try again. Everything is level-based: a
reconcile looks at what is, never at which event woke it.
"""
