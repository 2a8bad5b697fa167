# SPDX-License-Identifier: Apache-2.0
"""UsageError
└── ConfigError     the file cannot be read, or a field in it is wrong
"""

from refloat.base.errors import UsageError


class ConfigError(UsageError):
    """The message has the file, the field's path, the value and what is expected."""
