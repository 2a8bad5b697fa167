# SPDX-License-Identifier: Apache-2.0
"""UsageError
└── ConfigError     the file cannot be read, or a field in it is wrong
"""

from refloat.base.errors import UsageError


class ConfigError(UsageError):
    """Says the file, the field's path, its value, and what was expected."""
