# SPDX-License-Identifier: Apache-2.0
"""All demos, in the order in which `refloat demo --list` shows them."""

from refloat.base.errors import UsageError
from refloat.demo import force_eviction, lifecycle, ranges_and_reasons, restart, zombie
from refloat.demo.demo_run import Demo
from refloat.demo.failures import cases

DEMOS = (
    Demo(
        "zombie",
        "A pod hangs on a lost node; Refloat frees it and its Job",
        zombie.run,
        zombie.SETTINGS,
    ),
    Demo("lifecycle", "A Job, its pods, an eviction and a budget, watched live", lifecycle.run),
    Demo("restart", "A cluster that restarts keeps its objects and its history", restart.run),
    Demo(
        "ranges-and-reasons",
        "A backoffPolicy: exit codes, and reasons of deleted pods",
        ranges_and_reasons.run,
        ranges_and_reasons.SETTINGS,
    ),
    Demo(
        "force-eviction",
        "An operator taints a node that is off: its volume is free",
        force_eviction.run,
        force_eviction.SETTINGS,
    ),
    *(case.demo for case in cases.CASES),
)

DEFAULT = DEMOS[0]


def find(name: str) -> Demo:
    """The demo with this name."""
    for demo in DEMOS:
        if demo.name == name:
            return demo
    names = ", ".join(demo.name for demo in DEMOS)
    raise UsageError(f"unknown demo {name!r}; one of {names}")
