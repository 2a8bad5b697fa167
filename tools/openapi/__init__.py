# SPDX-License-Identifier: Apache-2.0
"""The builder of the OpenAPI v3 documents that the API server serves."""
