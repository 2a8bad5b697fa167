# SPDX-License-Identifier: Apache-2.0
"""Describes where tasks wait, for the report of a deadlock.

The text has no memory addresses, so the reports of one seed are equal.
"""

import asyncio
from collections.abc import Sequence
from pathlib import PurePath
from types import CodeType
from typing import Any

# The first tasks show the cause; more would hide them.
MAX_LISTED = 40

# The names of these attributes in coroutines, generators and async generators.
_FRAME = ("cr_frame", "gi_frame", "ag_frame")
_AWAITED = ("cr_await", "gi_yieldfrom", "ag_await")


def report(tasks: Sequence["asyncio.Task[Any]"]) -> str:
    """A line for each task: the name, the calls in progress, and the awaited future."""
    lines = [f"  {task.get_name()}: {describe(task)}" for task in tasks[:MAX_LISTED]]
    if len(tasks) > MAX_LISTED:
        lines.append(f"  and {len(tasks) - MAX_LISTED} more")
    return "\n".join(lines)


def describe(task: "asyncio.Task[Any]") -> str:
    places = []
    suspended: object = task.get_coro()
    while suspended is not None:
        frame = _first(suspended, _FRAME)
        if frame is not None:
            places.append(place(frame.f_code, frame.f_lineno))
        suspended = _first(suspended, _AWAITED)
    calls = " > ".join(places) or "not started"
    future = getattr(task, "_fut_waiter", None)
    return f"{calls}, for {_name(future)}" if future is not None else calls


def _name(future: object) -> str:
    if isinstance(future, asyncio.Task):
        return f"task {future.get_name()}"
    return f"a {type(future).__name__.lower()}"


def _first(thing: object, names: tuple[str, ...]) -> Any:
    return next((getattr(thing, name) for name in names if hasattr(thing, name)), None)


def place(code: CodeType, line: int) -> str:
    """`store/store.py:130 create`."""
    return f"{'/'.join(PurePath(code.co_filename).parts[-2:])}:{line} {code.co_qualname}"
