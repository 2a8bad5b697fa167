# SPDX-License-Identifier: Apache-2.0
"""What holds for all tests.

Properties are tried on the same examples in every run, however slow the
machine is, so that a red run means a change. `REFLOAT_EXPLORE=1 pytest ...`
looks for new ones.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

from refloat.agent.keeper import groups

settings.register_profile(
    "refloat",
    deadline=None,
    derandomize=not os.environ.get("REFLOAT_EXPLORE"),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("refloat")

# What waits for processes more than it computes. The scenarios are played once for all
# workers: whoever asks for them later need not wait. The kills take longest of all.
_WAITING = ("tests/scenarios/", "tests/faults/", "tests/e2e/test_crash.py", "tests/e2e/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what waits: one worker has it, and leaves its processor to the others."""
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    found = (at for at, each in enumerate(_WAITING) if item.nodeid.startswith(each))
    return next(found, len(_WAITING))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what this run has shown, where that depends on the machine."""
    made = groups.Groups.make("tests")
    by = groups.MEASURED if made is None else made.memory
    if made is not None:
        made.close()
    terminalreporter.write_line(f"memory limits of containers, as this machine allows: {by}")
