# SPDX-License-Identifier: Apache-2.0
"""The command line: argv becomes settings, settings become an app.

Only this package prints or exits. `commands` imports the module of a command when
the command runs, so that `refloat --help` answers at once.
"""
