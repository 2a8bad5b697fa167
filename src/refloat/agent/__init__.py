# SPDX-License-Identifier: Apache-2.0
"""One node: it registers, keeps its lease, and drives the lives of its pods.

The pod worker is one for all runtimes; what a container is, a process or a
line in a table, only its `Runtime` knows. Nothing here decides what a pod's
end means for a Job.
"""
