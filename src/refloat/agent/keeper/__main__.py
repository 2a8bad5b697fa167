# SPDX-License-Identifier: Apache-2.0
"""`keeper FOLDER [--no-groups]`: the keeper of one node, until it is told to end.

Run by its path and without `site`, which halves what it weighs; so it finds
its own package by where it lies. It closes its standard output when it listens.
"""

import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))

from refloat.agent.keeper import service  # noqa: E402 - only now can it be found

if __name__ == "__main__":
    sys.exit(service.main(*sys.argv[1:]))
