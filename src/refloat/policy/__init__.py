# SPDX-License-Identifier: Apache-2.0
"""What Refloat decides, as functions of what was observed and of the time.

Nothing here reads a clock, calls an API or remembers anything: a controller
observes, asks here, and applies the plan that it gets. The same functions
serve the controllers, `refloat explain` and the simulator.

One sync of a Job asks in this order (behaviour A4):

1. `census.observe`      who is there, and what is new since the last write;
2. `outcome.decide`      is the Job over, and why;
3. `scaling.plan`        if not: which pods to make or to remove, and then
                         `outcome.completed` with the number left active;
4. `accounting.plan`     the first write of the status, and whose finalizers
                         go after it;
5. `accounting.settle`   the second write, when they are gone.

What a single field of the API means has its own module, named after it:
`pod_failure`, `pod_replacement`, `success_policy`, `ttl`; `backoff` has the limits
and delays. `phase` belongs to nodes, not to Jobs.
"""
