# SPDX-License-Identifier: Apache-2.0
"""What fields are when nobody set them: one module per kind.

Every `apply` changes a decoded object in place, and only where a field is
absent. What an admission plugin or the registry sets is not here.
"""
