# SPDX-License-Identifier: Apache-2.0
"""Tests in virtual time.

    @virtual()
    async def test_a_lease_runs_out(sim: Sim) -> None: ...

    @virtual(seeds=1000)
    async def test_no_order_loses_a_write(sim: Sim, tmp_path: Path) -> None: ...

    @virtual(JobCluster, in_turn(FAILS, OK))
    async def test_a_failure_is_retried(cluster: JobCluster) -> None: ...

The first parameter is the `Sim`, or what the first argument of `virtual` opens: the test
then runs inside of `async with JobCluster(sim, in_turn(FAILS, OK)) as cluster`. The others
are pytest's, from fixtures that are not async (those run on a loop of pytest's own). A
failure says its seed, and `REFLOAT_SEED=17 pytest ...` runs that one alone.
"""

import inspect
import os
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

from refloat.sim.loop import Bounds
from refloat.sim.run import Sim, run

ONLY = "REFLOAT_SEED"

Test: TypeAlias = Callable[..., Coroutine[Any, Any, None]]


def seeds(count: int, first: int = 0) -> range | tuple[int]:
    """So many seeds, or the one that the environment asks for."""
    only = os.environ.get(ONLY)
    return range(first, first + count) if only is None else (int(only),)


def virtual(
    opens: Callable[..., AbstractAsyncContextManager[Any]] | None = None,
    *args: Any,
    seeds: int = 1,
    seed_from: str = "",
    shuffle: bool = True,
    bounds: Bounds | None = None,
    **options: Any,
) -> Callable[[Test], Callable[..., None]]:
    """Run an async test in virtual time, once for each of so many seeds.

    `seed_from` names the parameter of the test that is its first seed, in place of 0.
    """

    def decorate(inner: Test) -> Callable[..., None]:
        async def opened(sim: Sim, **fixtures: Any) -> None:
            assert opens is not None
            async with opens(sim, *args, **options) as context:
                await inner(context, **fixtures)

        test = inner if opens is None else opened

        def run_all(**fixtures: Any) -> None:
            for seed in _seeds(seeds, fixtures[seed_from] if seed_from else 0):
                _run(test, fixtures, seed=seed, shuffle=shuffle, bounds=bounds)

        parameters = list(inspect.signature(inner).parameters.values())
        run_all.__signature__ = inspect.Signature(parameters[1:])  # type: ignore[attr-defined]
        for name in ("__name__", "__qualname__", "__module__", "__doc__"):
            setattr(run_all, name, getattr(inner, name))
        return run_all

    return decorate


_seeds = seeds  # the decorator has an argument of this name


def _run(
    test: Test, fixtures: dict[str, Any], *, seed: int, shuffle: bool, bounds: Bounds | None
) -> None:
    def program(sim: Sim) -> Coroutine[Any, Any, None]:
        return test(sim, **fixtures)

    try:
        run(program, seed=seed, shuffle=shuffle, bounds=bounds)
    except BaseException as error:
        current = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        error.add_note(f"again: {ONLY}={seed} pytest '{current}'")
        raise
