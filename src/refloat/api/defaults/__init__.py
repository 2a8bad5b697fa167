# SPDX-License-Identifier: Apache-2.0
"""The default values of fields: one module for each kind.

Every `apply` changes a decoded object in place, and only where a field is
absent. Admission and the registry set other fields.
"""
