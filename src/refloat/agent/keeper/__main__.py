# SPDX-License-Identifier: Apache-2.0
"""`keeper FOLDER [--no-groups]` runs the keeper of one node until SIGTERM or `shutdown`.

The agent runs this file by its path and without `site`, which halves the memory. So
this file finds the package by its own path. The keeper closes its standard output
when it listens.
"""

import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))

from refloat.agent.keeper import service  # noqa: E402 - needs the path above

if __name__ == "__main__":
    sys.exit(service.main(*sys.argv[1:]))
