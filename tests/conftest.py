# SPDX-License-Identifier: Apache-2.0
"""What holds for all tests.

Properties are tried on the same examples in every run, however slow the
machine is, so that a red run means a change. `REFLOAT_EXPLORE=1 pytest ...`
looks for new ones.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

from refloat.agent.keeper import cgroups

settings.register_profile(
    "refloat",
    deadline=None,
    derandomize=not os.environ.get("REFLOAT_EXPLORE"),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("refloat")

# Tests that wait for processes more than they compute. The scenarios run once for all
# workers: workers that ask later need not wait. The kills take longest of all.
_WAITING = ("tests/scenarios/", "tests/faults/", "tests/e2e/test_server_kills.py", "tests/e2e/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that wait, which leave their processor to the others."""
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    places = (at for at, each in enumerate(_WAITING) if item.nodeid.startswith(each))
    return next(places, len(_WAITING))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what this run has shown, where that depends on the machine."""
    tree = cgroups.CgroupTree.make("tests")
    by = cgroups.MEASURED if tree is None else tree.memory
    if tree is not None:
        tree.close()
    terminalreporter.write_line(f"memory limits of containers, as this machine allows: {by}")
