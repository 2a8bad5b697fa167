# SPDX-License-Identifier: Apache-2.0
"""Refloat's decisions: pure functions of observed objects and `now`.

No module here reads a clock, calls an API or keeps state. A controller observes, asks a
function here, and applies the plan that the function returns. The same functions serve
the controllers, `refloat explain` and the simulator.

`job` decides about Jobs and their pods, `recovery` about pods on lost nodes,
`scheduling` about where pods run and which pods make room, `node` about one node, and
`garbage` about objects that must go.
"""
