# SPDX-License-Identifier: Apache-2.0
"""Containers as processes of this machine: the agent's side.

`runtime` is the `Runtime` that the pod worker drives. It turns a container of
a pod into something that `keeper` can start (`pods`, `environment`, `volumes`,
`images`), over `link`; and what the keeper tells into records (`endings`).
Nothing here runs a process itself, and nothing here is lost with the agent.
"""
