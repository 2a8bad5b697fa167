# SPDX-License-Identifier: Apache-2.0
"""The nodes of the situations with real processes, and requests that fill one."""

import os

WORKER, SECOND, IMAGES, LOW = "n1", "n2", "images", "low"

# More than half of a node with two processors or more.
LARGE = {"resources": {"requests": {"cpu": f"{(os.cpu_count() or 1) * 600}m"}}}
IMPORTANT = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "important"},
    "value": 1000,
}
