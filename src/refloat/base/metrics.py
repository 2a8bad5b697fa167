# SPDX-License-Identifier: Apache-2.0
"""The metrics of one process: a registry of its own, and its text.

The code that assembles a process makes a registry and passes it to all parts that
count. Nothing uses the library's global registry, so that two clusters in one
process, as in tests and the simulator, do not add up.
"""

from prometheus_client import (
    CollectorRegistry,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import choose_encoder

# Kubernetes does not have these series either, and they double the number of lines.
disable_created_metrics()  # type: ignore[no-untyped-call]


def process_registry() -> CollectorRegistry:
    """A registry with the metrics of the process: CPU, memory, files."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry


def exposition(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """All metrics in a format that the scraper accepts, and the media type."""
    encode, media = choose_encoder(accept)
    return encode(registry), media
