# SPDX-License-Identifier: Apache-2.0
"""The parent of all containers of a node, in a process of its own.

It starts processes, holds their exit codes, writes down what they print, and
ends all of them that belong together. It outlives the agent that asks it to,
so an agent can crash, freeze or be replaced and finds everything as it was.
What outlives the keeper is nothing: its containers die with it, and the next
keeper ends what is left before it listens.

Standard library only, one thread, and nothing that blocks: it is to be small,
and there is nobody who would restart it. `process` is the agent's side.

    files       small files of /proc and /sys
    linux       the system calls that Python does not have
    paths       files below a folder that a container can write
    peers       which process asks
    seccomp     the runtime's default filter of system calls
    specs       whether a request has the right form
    loop        what it waits for: descriptors, timers, children
    wire        requests and answers as lines of JSON
    mounts      a container's own view of the file system
    launch      from fork to exec
    groups      cgroups, where the machine gives us one
    members     which processes belong to a container
    output      logs, by the line, rotated
    container   the life of one container
    server      what may be asked
    service     the process: its lock, its socket, its end
"""
