# SPDX-License-Identifier: Apache-2.0
"""The answer to a refused caller: code and text, to the letter."""

import re

import pytest

from refloat.api.errors import StatusError


def refusal(code: int, message: str) -> pytest.RaisesExc[StatusError]:
    """Expect a Status of this code with exactly this message."""
    return pytest.raises(
        StatusError, match=f"^{re.escape(message)}$", check=lambda error: error.code == code
    )
