# SPDX-License-Identifier: Apache-2.0
"""`python -m refloat` is the command `refloat`, where no script is installed."""

from refloat.cli import main

main.main()
