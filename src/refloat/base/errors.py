# SPDX-License-Identifier: Apache-2.0
"""The root of Refloat's own errors.

RefloatError
└── UsageError      the caller's fault: bad flags, files or values; says what to do

Each package draws its own tree below these in its `errors.py`.
"""


class RefloatError(Exception):
    """Something that Refloat foresaw; its text is meant for a person."""


class UsageError(RefloatError):
    """The command was used wrongly; exit code 2."""
