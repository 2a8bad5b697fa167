# SPDX-License-Identifier: Apache-2.0
"""The base of all packages: time, chance, gates, errors, logs, tasks.

Nothing here knows Kubernetes. Nothing here imports another Refloat package.
"""
