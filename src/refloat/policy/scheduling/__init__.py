# SPDX-License-Identifier: Apache-2.0
"""Where a pod may run, which pods make room for it, and what disruption budgets allow."""
