# SPDX-License-Identifier: Apache-2.0
"""Where the process begins.

It imports next to nothing: Python answers a Ctrl-C during an import with a
traceback, so the imports come after the handler that ends the process quietly.
"""

from refloat.cli import interrupts


def main() -> None:
    """Run the command that the arguments name."""
    with interrupts.that_end():
        from refloat.cli import commands  # noqa: PLC0415 - see above
    commands.run()
