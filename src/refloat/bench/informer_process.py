# SPDX-License-Identifier: Apache-2.0
"""A process with an informer that measures its own memory and CPU.

`bench.informer` starts the process with KUBECONFIG EVENTS MODE. The process
prints two lines of JSON: when the cache is full, and after EVENTS changes. A
separate process, because memory that earlier work left free would hide the
memory of the informer.
"""

import asyncio
import gc
import json
import os
import sys
import time
from pathlib import Path

import uvloop

from refloat.api.core import Pod
from refloat.base.clock import RealClock
from refloat.base.rand import Rand
from refloat.bench.processes import MeasuredProcess
from refloat.client import kinds, kubeconfig
from refloat.client.http import HttpClient
from refloat.client.settings import ClientSettings
from refloat.runtime import index
from refloat.runtime.informer import Change, Informer
from refloat.runtime.reflector import FollowSettings

INDEXES = (index.NODE, index.CONTROLLER, index.label("batch.kubernetes.io/job-name"))


def main() -> None:
    """Follow the pods of the cluster in the given kubeconfig."""
    config, events, mode = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_follow(Path(config), int(events), streams=mode == "stream"))


class _Counter:
    """A handler that counts changes down to zero."""

    def __init__(self, events: int) -> None:
        self._missing = events
        self.started = 0.0
        self.done = asyncio.Event()

    def __call__(self, change: Change[Pod]) -> None:
        if change.old is None:
            return
        self.started = self.started or time.process_time()
        self._missing -= 1
        if not self._missing:
            self.done.set()


async def _follow(config: Path, events: int, *, streams: bool) -> None:
    clock, rand = RealClock(), Rand()
    client = HttpClient(
        kubeconfig.load([config]), clock=clock, rand=rand, settings=ClientSettings(qps=0)
    )
    await client.get(kinds.NAMESPACES, "default")  # loads modules, which are no cost of a pod
    informer = Informer(
        client,
        kinds.PODS,
        clock=clock,
        rand=rand,
        indexes=INDEXES,
        settings=FollowSettings(initial_events=streams),
    )
    counter, process = _Counter(events), MeasuredProcess(os.getpid())
    informer.add_handler(counter)
    gc.collect()
    resident, started = process.resident_bytes(), time.process_time()
    informer.start()
    await informer.wait_synced()
    cpu = time.process_time() - started
    gc.collect()
    _print(count=len(informer.cache), cpu=cpu, resident=process.resident_bytes() - resident)
    await counter.done.wait()
    cpu = time.process_time() - counter.started
    _print(count=events, cpu=cpu, resident=process.resident_bytes() - resident)
    await informer.close()
    await client.close()


def _print(**figures: float) -> None:
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()
