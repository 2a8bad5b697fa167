# SPDX-License-Identifier: Apache-2.0
"""The verbs of the Kubernetes API, typed, on two transports.

`contract` is what a controller sees; `http` speaks to any API server over the
wire, `local` to the embedded one in this process. One contract suite runs on
both. Nothing here knows a controller.
"""
