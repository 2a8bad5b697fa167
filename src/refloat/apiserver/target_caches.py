# SPDX-License-Identifier: Apache-2.0
"""Clears the caches in which libraries keep the targets of requests.

yarl, with which aiohttp splits each target, and urllib keep the last 128 results of
each function, of any size. A target may have 1 MiB, so a client could make these
caches hold some 100 MiB. The server clears them after each large target.
"""

import urllib.parse

from yarl import _parse, _url

# 128 of these take half a megabyte. Targets with long selectors are above.
LARGE_CHARACTERS = 4096

# By methods and not by names, which change with versions of the libraries.
_CACHES = tuple(
    each
    for module in (_url, _parse, urllib.parse)
    for each in vars(module).values()
    if hasattr(each, "cache_clear") and hasattr(each, "cache_info")
)


def clear() -> None:
    """Drop all targets; each costs a microsecond the next time."""
    for cache in _CACHES:
        cache.cache_clear()


def clear_after(target: str) -> None:
    """Drop all targets if this target, which a library has just split, is large."""
    if len(target) > LARGE_CHARACTERS:
        clear()


def count() -> int:
    """The entries in all caches."""
    return sum(cache.cache_info().currsize for cache in _CACHES)
