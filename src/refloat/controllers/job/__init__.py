# SPDX-License-Identifier: Apache-2.0
"""The Job controller: pods for Jobs, and what their ends mean (behaviour part A).

`controller` says which Job is looked at and when, `sync` does it in the order
of behaviour A4 and A5, with `claims` (whose is a pod), `writes` (what is asked
of the API), `creation`, `pods` and `pod_names` (what a new pod looks like) and
`attempts` (what is kept of failures). `memory` is
all that is remembered between syncs, and none of it is needed after a
restart. `orphans` frees pods that no Job will count any more. What to do is
never decided here but in `refloat.policy`.
"""
