# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI v3 documents, as Kubernetes serves them: shipped data, not built here.

`kubectl explain`, `kubectl apply` and `kubectl create` read them. `tools/openapi`
builds them from `refloat.api.schema`.
`gated` selects the variant with the fields of `refloat.api.gated_fields`.
"""

import hashlib
import zlib
from functools import cache
from importlib import resources

import msgspec

from refloat.api.meta import Object

FILE = "openapi.json.zlib"


@cache
def index(*, gated: bool = False) -> Object:
    """`/openapi/v3`: the path of each document, with the document's hash."""
    return {
        "paths": {
            path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest(path, gated=gated)}"}
            for path in documents()["documents"]
        }
    }


def document(path: str, *, gated: bool = False) -> bytes | None:
    """`/openapi/v3/<path>`, for example of `apis/batch/v1`; None if there is none."""
    data = documents()
    variant = data["gated"].get(path) if gated else None
    return variant or data["documents"].get(path)


@cache
def digest(path: str, *, gated: bool = False) -> str:
    """The hash of an existing document, for its address and its ETag."""
    return hashlib.sha512(document(path, gated=gated) or b"").hexdigest().upper()


@cache
def documents() -> dict[str, dict[str, bytes]]:
    """All encoded documents by path, and those with gated fields; read on first use."""
    data = zlib.decompress(resources.files("refloat.apiserver").joinpath(FILE).read_bytes())
    groups = msgspec.json.decode(data, type=dict[str, dict[str, msgspec.Raw]])
    return {
        name: {path: bytes(body) for path, body in group.items()} for name, group in groups.items()
    }
