# SPDX-License-Identifier: Apache-2.0
"""Replaces `$(NAME)` in commands, arguments and environments, like Kubernetes.

A reference to an unknown name stays unchanged. `$$` becomes a dollar sign, so
`$$(NAME)` reaches the shell as `$(NAME)`.
"""

import re
from collections.abc import Mapping

# A reference, an escaped dollar sign, or a dollar sign alone.
_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


def expand(text: str, values: Mapping[str, str]) -> str:
    """The text with its references replaced, but not the references in their values."""
    if "$" not in text:
        return text

    def replaced(match: re.Match[str]) -> str:
        name = match[1]
        if name is None:
            return "$"
        return values.get(name, match[0])

    return _REFERENCE.sub(replaced, text)
