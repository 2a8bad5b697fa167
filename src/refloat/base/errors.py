# SPDX-License-Identifier: Apache-2.0
"""The root of Refloat's own errors.

RefloatError
└── UsageError      the caller's fault: bad flags, files or values; the message has the remedy

Each package draws its own tree below these in its `errors.py`.
"""


class RefloatError(Exception):
    """An expected error, with a message for users."""


class UsageError(RefloatError):
    """Wrong use of a command; exit code 2."""
