# SPDX-License-Identifier: Apache-2.0
"""Containers as processes of this machine: the agent's side.

`runtime` is the `Runtime` that the pod worker drives. It turns a container of a pod
into a request to the keeper (`start_request`, `security_context`, `volumes`,
`images`), sends the request (`keeper_client`), and turns answers into records
(`termination_message`). The keeper runs all processes, so no container ends with the
agent.
"""
