# SPDX-License-Identifier: Apache-2.0
"""Hostile requests to a real server: what each one costs the others."""
