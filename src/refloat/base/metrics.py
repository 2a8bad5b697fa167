# SPDX-License-Identifier: Apache-2.0
"""The metrics of one process: a registry of its own, and its text.

A registry is made where a process is composed and handed to whoever counts.
The library's global one is never used, so two clusters in one process, as
tests and the simulator have them, do not add up.
"""

from prometheus_client import (
    CollectorRegistry,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import choose_encoder

# Kubernetes has no such series either, and they double the number of lines.
disable_created_metrics()  # type: ignore[no-untyped-call]


def process_registry() -> CollectorRegistry:
    """A registry that already tells of the process itself: CPU, memory, files."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry


def exposition(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """All metrics in the format that a scraper accepts, and that format's media type."""
    encode, media = choose_encoder(accept)
    return encode(registry), media
