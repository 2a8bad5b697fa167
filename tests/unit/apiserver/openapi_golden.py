# SPDX-License-Identifier: Apache-2.0
"""The structure of Kubernetes' own OpenAPI documents, as digests to compare with.

Only digests are kept, without any description. When the Kubernetes version
changes, fetch the documents (see `tools/schema/README.md`) and write them anew:

    python -m tests.unit.apiserver.openapi_golden DIRECTORY_OF_DOCUMENTS
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from refloat.apiserver import openapi

FILE = Path(__file__).with_suffix(".json")

# What Kubernetes lists and Refloat does not serve.
_NOT_SERVED = ("shardSelector", "ignoreStoreReadErrorWithClusterBreakingPotential")

# What Refloat has and Kubernetes does not.
_OWN_PARAMETERS = ("reason",)
_OWN_FIELDS = {"io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions": ("reason",)}


def schemas(document: dict[str, Any]) -> dict[str, str]:
    """A digest of each type's structure, without what is Refloat's own."""
    return {
        name: _digest(_without_own_fields(name, schema))
        for name, schema in document["components"]["schemas"].items()
    }


def items(document: dict[str, Any]) -> dict[str, str]:
    """A digest of each address, without protobuf and what only one side has."""
    return {address: _digest(_reduced(item)) for address, item in document["paths"].items()}


def _without_own_fields(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    own = _OWN_FIELDS.get(name)
    if not own:
        return schema
    properties = {key: value for key, value in schema["properties"].items() if key not in own}
    return schema | {"properties": properties}


def _reduced(value: Any) -> Any:
    if isinstance(value, list):
        return [_reduced(each) for each in value]
    if not isinstance(value, dict):
        return value
    reduced = {key: _reduced(each) for key, each in value.items() if "protobuf" not in key}
    if "parameters" in reduced:
        left_out = (*_NOT_SERVED, *_OWN_PARAMETERS)
        reduced["parameters"] = [
            each for each in reduced["parameters"] if each["name"] not in left_out
        ]
    return reduced


def _digest(value: Any) -> str:
    text = json.dumps(_without_descriptions(value), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _without_descriptions(value: Any, *, names: bool = False) -> Any:
    """`names`: the keys are names of fields, and one may be `description`."""
    if isinstance(value, list):
        return [_without_descriptions(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _without_descriptions(each, names=key == "properties")
        for key, each in value.items()
        if names or key != "description"
    }


def main(directory: str) -> None:
    golden: dict[str, dict[str, dict[str, str]]] = {}
    for path in openapi.index()["paths"]:
        file = Path(directory, path.replace("/", "_") + ".json")
        if not file.exists():
            continue
        theirs = json.loads(file.read_text())
        ours = json.loads(openapi.document(path) or b"")
        golden[path] = {
            "items": {key: d for key, d in items(theirs).items() if key in ours["paths"]},
            "schemas": {
                key: d for key, d in schemas(theirs).items() if key in ours["components"]["schemas"]
            },
        }
    FILE.write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
