# SPDX-License-Identifier: Apache-2.0
"""A whole cluster in virtual time, from one seed."""
