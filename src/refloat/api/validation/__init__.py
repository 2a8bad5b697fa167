# SPDX-License-Identifier: Apache-2.0
"""Whether an object is valid: one module per kind, the pod's in several.

Objects come decoded, type-checked and defaulted. Every function returns the
list of errors, in Kubernetes' words and order, and never raises.
"""
