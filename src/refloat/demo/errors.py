# SPDX-License-Identifier: Apache-2.0
"""The errors that stop a demo.

RefloatError
└── DemoFailed     the demo cannot go on; the text has the reason
"""

from refloat.base.errors import RefloatError


class DemoFailed(RefloatError):
    """The demo did not reach its end."""
