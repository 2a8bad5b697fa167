# SPDX-License-Identifier: Apache-2.0
"""Scenarios: what a user does with Jobs, pods and nodes, written once for any cluster.

A scenario needs a client and a clock, and nothing else of a cluster: `refloat up`, a
Kubernetes, or `sim.cluster.Cluster` in virtual time. It waits for what its watches
show, never for a span of time alone. Demos and tests use this package.
"""
