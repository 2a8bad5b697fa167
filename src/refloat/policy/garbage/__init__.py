# SPDX-License-Identifier: Apache-2.0
"""Which objects the garbage collectors delete."""
