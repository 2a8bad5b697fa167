# SPDX-License-Identifier: Apache-2.0
"""A Kubernetes API server: the HTTP face and the resource rules, on a store.

From the outside in: `http` and `exchange` (requests and answers), `targets`,
`options` and `forms` (what is asked for, and how it is shown), `resources`
and `documents` (the handlers), `registry` with `strategies`, `admission`,
`patching` and `deletion` (the rules), `stored`, `selection`, `listing` and
`watching` (reading the store).
"""
