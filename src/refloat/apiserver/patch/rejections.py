# SPDX-License-Identifier: Apache-2.0
"""Errors with the same message in every patch format."""

from typing import Any

from refloat.api import errors, fields
from refloat.apiserver.patch import go_values


def unprocessable() -> errors.StatusError:
    """The patch is well-formed but does not fit the object."""
    message = "the server rejected our request due to an error in our request"
    return errors.StatusError(422, "Invalid", message, details={})


def plain(message: str) -> errors.StatusError:
    """An error that Kubernetes answers with 500 and no reason."""
    return errors.StatusError(500, "", message)


def undecodable(patch_text: str, cause: str) -> errors.StatusError:
    """The patched document is no valid object of its kind.

    `shown` is the whole patched document's JSON for JSON patches and merge
    patches, and `go_values.show(patch)` for strategic ones.
    """
    return errors.invalid("", "", "", [fields.invalid("patch", patch_text, cause)])


def not_an_object(patch: Any) -> str:
    """Go's words for a patch that is a list, a text or a number."""
    kind = go_values.json_type(patch)
    return f"json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
