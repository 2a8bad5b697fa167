# SPDX-License-Identifier: Apache-2.0
"""All cases, in the order of `refloat demo --list`."""

from refloat.demo.failures import disconnected, disruptions, node_endings, pending, replacement
from refloat.demo.failures.case import Case

CASES: tuple[Case, ...] = (
    *disruptions.CASES,
    *node_endings.CASES,
    *disconnected.CASES,
    *pending.CASES,
    *replacement.CASES,
)
