# SPDX-License-Identifier: Apache-2.0
"""Why an object is where it is, from objects and events alone.

`gather` asks the cluster, `pod` and `node` make sentences of the answers; what
will happen is asked of the same pure decisions by which the controllers act.
Nothing here writes.
"""
