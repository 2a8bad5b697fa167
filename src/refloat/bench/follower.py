# SPDX-License-Identifier: Apache-2.0
"""A process that holds an informer and tells what that costs it.

`bench.informer` starts it as `python -c ... KUBECONFIG EVENTS MODE`; it
answers with two lines of JSON: when its cache is full, and when it has seen
so many changes. A process of its own, because memory that another use left
free would hide what this one takes.
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
from refloat.client import kinds, kubeconfig
from refloat.client.http import HttpClient
from refloat.client.settings import Settings
from refloat.runtime import index
from refloat.runtime.informer import Informer
from refloat.runtime.reflector import FollowSettings

_PAGE = os.sysconf("SC_PAGE_SIZE")

INDEXES = (index.NODE, index.CONTROLLER, index.label("batch.kubernetes.io/job-name"))


def main() -> None:
    """Follow the pods of the cluster in the kubeconfig that the arguments name."""
    config, events, mode = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_follow(Path(config), int(events), streams=mode == "stream"))


class _Counter:
    """A handler that notes when enough has changed."""

    def __init__(self, enough: int) -> None:
        self._left = enough
        self.started = 0.0
        self.done = asyncio.Event()

    def __call__(self, old: Pod | None, new: Pod | None) -> None:
        if old is None:
            return
        self.started = self.started or time.process_time()
        self._left -= 1
        if not self._left:
            self.done.set()


async def _follow(config: Path, events: int, *, streams: bool) -> None:
    clock, rand = RealClock(), Rand()
    client = HttpClient(kubeconfig.load([config]), clock=clock, rand=rand, settings=Settings(qps=0))
    await client.get(kinds.NAMESPACES, "default")  # what is loaded once is not a pod's cost
    informer = Informer(
        client,
        kinds.PODS,
        clock=clock,
        rand=rand,
        indexes=INDEXES,
        settings=FollowSettings(initial_events=streams),
    )
    counter = _Counter(events)
    informer.add_handler(counter)
    gc.collect()
    resident, used = _resident(), time.process_time()
    informer.start()
    await informer.wait_synced()
    used = time.process_time() - used
    gc.collect()
    _say(count=len(informer.cache), cpu=used, resident=_resident() - resident)
    await counter.done.wait()
    _say(count=events, cpu=time.process_time() - counter.started, resident=_resident() - resident)
    await informer.close()
    await client.close()


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def _say(**figures: float) -> None:
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()
