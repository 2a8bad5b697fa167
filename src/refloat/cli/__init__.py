# SPDX-License-Identifier: Apache-2.0
"""The command line: argv becomes settings, settings become an app.

The only place that prints or exits. A command's module is imported when the
command runs, so that `refloat --help` answers at once.
"""
