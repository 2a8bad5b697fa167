# SPDX-License-Identifier: Apache-2.0
"""The parent process of all containers of a node.

The keeper starts processes, keeps their exit codes, writes their logs and ends all
processes of a container together. The keeper outlives the agent: an agent can crash,
freeze or be replaced, and the containers run on. Containers die with their keeper,
and the next keeper kills the rest before it listens.

The keeper must stay small and no process restarts it. So this package uses the
standard library only, one thread, and no call that blocks. `process` has the agent's
side.

    small_files    small files of /proc and /sys
    syscalls       system calls that Python does not have
    paths          files below a folder that a container can write
    peer_check     which process is at the other end of a socket
    seccomp        the default filter of system calls
    start_request  checks the form of a request
    loop           descriptors, timers and signals
    wire           requests and answers as lines of JSON
    mounts         a container's own view of the file system
    launch         from fork to exec
    cgroups        cgroups, if the machine allows them
    process_tree   which processes belong to a container
    log_writer     logs, line by line, with rotation
    container      the life of one container
    server         the requests of agents
    service        the process: lock, socket, end
"""
