# SPDX-License-Identifier: Apache-2.0
"""The three patch formats, as pure functions from document to document.

The `apply` of each module never changes its arguments, and copies only what the
patch changes. `patch_verb` decodes the body and checks the result against the kind's
schema; `rejections` words the errors. Server-side apply is not here but in
`refloat.apiserver.apply`.
"""
