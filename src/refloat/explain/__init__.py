# SPDX-License-Identifier: Apache-2.0
"""Why an object is in its state, from objects and events alone, and what happens next.

`gather` reads the cluster with the rights of the user. `job`, `pod`, `node` and `cronjob` are
pure: each turns the objects into one `Finding` with a code of `codes`, by the decisions of
`policy` that the controllers carry out. `doctor` does this for a whole cluster. Nothing here
writes.
"""
