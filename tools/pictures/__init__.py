# SPDX-License-Identifier: Apache-2.0
"""The pictures of the documents: `make pictures` draws them again."""
