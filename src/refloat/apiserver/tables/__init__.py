# SPDX-License-Identifier: Apache-2.0
"""Objects as rows and columns, as `kubectl get` prints them.

A module for each group of kinds makes the cells; `render` makes whole answers. Nothing
here reads the clock or changes an object.
"""
