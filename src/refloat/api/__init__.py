# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' API as data: kinds, schema, codec, defaults, validation, errors.

Objects are plain dictionaries in the shape of their JSON (`meta.Object`).
Nothing here does I/O or asks for the time.
"""
