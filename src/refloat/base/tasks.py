# SPDX-License-Identifier: Apache-2.0
"""Background tasks, with references and a log of their errors.

asyncio keeps only weak references to tasks, and does not report the exception of a
task without an await. `Tasks` holds the tasks, logs their errors, and ends them
together.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger(__name__)


class Tasks:
    """The background tasks of one component."""

    def __init__(self) -> None:
        # A dictionary for its order: tasks end in the order of their start.
        self._running: dict[asyncio.Task[Any], None] = {}

    def spawn(self, work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task %s died", task.get_name(), exc_info=error)

    async def close(self) -> None:
        """Cancel all tasks and wait for their ends."""
        for task in list(self._running):
            task.cancel()
        await self.wait()

    async def wait(self) -> None:
        """Wait for the ends of all tasks."""
        await asyncio.gather(*self._running, return_exceptions=True)
