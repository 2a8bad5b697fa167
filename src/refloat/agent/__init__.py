# SPDX-License-Identifier: Apache-2.0
"""The node agent: registers a node, renews the node's lease and runs the node's pods.

The pod worker works with every `Runtime`; the containers of a runtime are processes or
simulated. The Job controller decides what the end of a pod means, not the agent.
"""
