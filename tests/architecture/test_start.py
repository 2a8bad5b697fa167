# SPDX-License-Identifier: Apache-2.0
"""The command line answers a simple question without loading what the answer does not need."""

import json
import subprocess
import sys

import pytest

# These take long to load, and a help text needs none of them.
HEAVY = ("aiohttp", "cryptography", "msgspec", "sqlite3", "uvloop", "yaml", "prometheus_client")

PROGRAM = """
import json, sys
from refloat.cli import commands
commands.refloat.main({args!r}, standalone_mode=False)
print(json.dumps(sorted({{name.partition(".")[0] for name in sys.modules}})))
"""


def _loaded(*args: str) -> set[str]:
    program = PROGRAM.format(args=list(args))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_help_loads_nothing_heavy() -> None:
    assert _loaded("--help") & set(HEAVY) == set()


@pytest.mark.parametrize("heavy", ["aiohttp", "cryptography", "sqlite3", "uvloop"])
def test_the_version_loads_no_server(heavy: str) -> None:
    assert heavy not in _loaded("version")
