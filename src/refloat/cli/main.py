# SPDX-License-Identifier: Apache-2.0
"""The entry point of the process.

Python answers a Ctrl-C during an import with a traceback. So this module imports
next to nothing before the handler is set that ends the process quietly.
"""

from refloat.cli import ctrl_c


def main() -> None:
    """Run the command that the arguments name."""
    with ctrl_c.quiet_exit():
        from refloat.cli import commands  # noqa: PLC0415 - see above
    try:
        commands.run()
    finally:
        ctrl_c.exit_quietly()
