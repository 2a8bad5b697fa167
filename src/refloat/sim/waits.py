# SPDX-License-Identifier: Apache-2.0
"""Where tasks wait, in words, for the report of a deadlock.

The words hold no addresses: a report is as repeatable as the run.
"""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from types import CodeType
from typing import Any

# More would bury the first ones, which is where to look.
MAX_LISTED = 40

# How a coroutine, a generator and an async generator name the same two things.
_FRAME = ("cr_frame", "gi_frame", "ag_frame")
_AWAITED = ("cr_await", "gi_yieldfrom", "ag_await")


def report(tasks: Sequence["asyncio.Task[Any]"]) -> str:
    """A line for each task: its name, the calls that it is in, and what it awaits."""
    lines = [f"  {task.get_name()}: {describe(task)}" for task in tasks[:MAX_LISTED]]
    if len(tasks) > MAX_LISTED:
        lines.append(f"  and {len(tasks) - MAX_LISTED} more")
    return "\n".join(lines)


def describe(task: "asyncio.Task[Any]") -> str:
    calls = " > ".join(_calls(task.get_coro())) or "not started"
    awaited = getattr(task, "_fut_waiter", None)
    return f"{calls}, for {_name(awaited)}" if awaited is not None else calls


def _name(awaited: object) -> str:
    if isinstance(awaited, asyncio.Task):
        return f"task {awaited.get_name()}"
    return f"a {type(awaited).__name__.lower()}"


def _calls(suspended: object) -> Iterator[str]:
    """The places where a coroutine, and those that it awaits, are suspended."""
    while suspended is not None:
        frame = _first(suspended, _FRAME)
        if frame is not None:
            yield place(frame.f_code, frame.f_lineno)
        suspended = _first(suspended, _AWAITED)


def _first(thing: object, names: tuple[str, ...]) -> Any:
    return next((getattr(thing, name) for name in names if hasattr(thing, name)), None)


def place(code: CodeType, line: int) -> str:
    """`store/engine.py:130 create`."""
    return f"{'/'.join(PurePath(code.co_filename).parts[-2:])}:{line} {code.co_qualname}"
