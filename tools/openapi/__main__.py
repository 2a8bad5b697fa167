# SPDX-License-Identifier: Apache-2.0
"""Write the OpenAPI documents into the package: `python -m tools.openapi`.

Run it after a change of a kind, of a description or of `api/schema.json`.
"""

import zlib
from importlib import resources
from pathlib import Path

import msgspec
from tools.openapi import documents

from refloat.apiserver import openapi


def main() -> None:
    raw = {
        name: {path: msgspec.Raw(body) for path, body in group.items()}
        for name, group in documents.build().items()
    }
    data = zlib.compress(msgspec.json.encode(raw), level=9)
    with resources.as_file(resources.files("refloat.apiserver") / openapi.FILE) as file:
        Path(file).write_bytes(data)


if __name__ == "__main__":
    main()
