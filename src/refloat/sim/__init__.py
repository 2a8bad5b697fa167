# SPDX-License-Identifier: Apache-2.0
"""A whole cluster in virtual time: one history for each seed.

`run.run` runs a program from a seed. `cluster.Cluster` is the embedded cluster
for such a program. `controller_process.ControllerProcess` runs some
controllers on clients that fail on request.
"""
