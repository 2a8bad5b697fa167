# SPDX-License-Identifier: Apache-2.0
"""`$(NAME)` in commands, arguments and environments, as Kubernetes replaces it.

A name that nobody gave a value to stays as it is written, and `$$` is a dollar
sign, so that `$$(NAME)` reaches the shell as `$(NAME)`.
"""

import re
from collections.abc import Mapping

# A reference, an escaped dollar sign, or one that nothing follows from.
_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


def expand(text: str, values: Mapping[str, str]) -> str:
    """The text with its references replaced; what they are replaced by is not looked at again."""
    if "$" not in text:
        return text

    def replaced(match: re.Match[str]) -> str:
        name = match[1]
        if name is None:
            return "$"
        return values.get(name, match[0])

    return _REFERENCE.sub(replaced, text)
