# SPDX-License-Identifier: Apache-2.0
"""The verbs of the Kubernetes API, typed, on two transports.

Controllers use `contract`. `http` talks to any API server over the wire, `local`
to the embedded API server in this process. One contract suite runs on both.
This package knows no controller.
"""
