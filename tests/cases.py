# SPDX-License-Identifier: Apache-2.0
"""Tables of test cases: each key is the sentence that names a case, each value its arguments."""

from collections.abc import Mapping
from typing import Any

import pytest


def cases(names: str, table: Mapping[str, Any]) -> pytest.MarkDecorator:
    """Run the test for each row of the table; the row has the values of the named parameters."""
    return pytest.mark.parametrize(names.replace(" ", ","), table.values(), ids=table)
