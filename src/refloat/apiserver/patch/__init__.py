# SPDX-License-Identifier: Apache-2.0
"""The three patch formats, as pure functions from document to document.

Each module has one `apply`, which never changes what it is given and copies
only what it touches. Decoding a body and checking the result against the
kind's schema happen elsewhere; `rejected` words the answer when that fails.
Server-side apply is no patch in this sense: see `refloat.apiserver.apply`.
"""
