# SPDX-License-Identifier: Apache-2.0
"""Deletes finished Jobs when their TTL is over (behaviour A24).

The controller waits for the exact moment, reads the Job once more, and deletes the Job in the
foreground: the garbage collector deletes its dependents first. This controller runs only where
no other TTL controller runs, so never on Kubernetes.
"""

from refloat.controllers.ttl.controller import build

__all__ = ["build"]
