# SPDX-License-Identifier: Apache-2.0
"""Giving way to whatever else the event loop has ready.

The store starts no timers and must run on a loop that has none, so this is
not a sleep of zero seconds: nothing is scheduled but the caller itself.
"""

import types
from collections.abc import Generator


@types.coroutine
def give_way() -> Generator[None, None, None]:
    """Go on in the loop's next turn."""
    yield
