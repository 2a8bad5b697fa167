# SPDX-License-Identifier: Apache-2.0
"""What a Job does next, from its spec, its status and its pods.

One sync of a Job asks in this order (behaviour A4):

1. `observed.observe`      gathers the pods and what is new since the last write;
2. `outcome.decide`      decides whether the Job is over, and why;
3. `scaling.plan`        if the Job goes on: which pods to create or delete; then
                         `outcome.completed` with the number of active pods;
4. `accounting.plan`     plans the first write of the status and the finalizers that
                         the controller removes after this write;
5. `accounting.settle`   plans the second write, after the finalizers are gone.

Each policy field of the API has a module of the same name: `pod_failure`,
`pod_replacement`, `success_policy`, `ttl`. `backoff` has the limits and delays.
"""
