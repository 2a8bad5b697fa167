# SPDX-License-Identifier: Apache-2.0
"""Deletes pods from nodes with NoExecute taints, at once or when their time is over."""
