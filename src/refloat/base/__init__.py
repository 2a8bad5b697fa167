# SPDX-License-Identifier: Apache-2.0
"""What every other package may use: time, chance, gates, errors, logs, tasks.

Nothing here knows Kubernetes. Nothing here imports another Refloat package.
"""
