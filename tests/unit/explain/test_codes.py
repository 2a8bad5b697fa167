# SPDX-License-Identifier: Apache-2.0
"""The lists of codes are closed, documented, and in the schema."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from refloat.api.meta import Object
from refloat.explain.codes import CAUSES, MEANINGS, Cause, Code, severity
from tests.unit.explain.test_job import deleted, explain, finished, old, waiting
from tests.unit.policy.builders import failed

DOCS = Path(__file__).parents[3] / "docs"
DOCUMENT = (DOCS / "explain.md").read_text()
SCHEMA = msgspec.json.decode((DOCS / "explain.schema.json").read_bytes())


def test_each_code_is_documented_with_its_severity_and_meaning() -> None:
    rows = [f"| `{code}` | {severity(code)} | {MEANINGS[code]} |" for code in Code]
    assert [row for row in rows if row not in DOCUMENT] == []


def test_each_cause_is_documented() -> None:
    rows = [f"| `{cause}` | {CAUSES[cause]} |" for cause in Cause]
    assert [row for row in rows if row not in DOCUMENT] == []


def test_the_schema_lists_each_code_and_cause() -> None:
    properties = SCHEMA["properties"]
    assert properties["code"]["enum"] == [str(code) for code in Code]
    causes = properties["attempts"]["items"]["properties"]["cause"]["enum"]
    assert causes == [str(cause) for cause in Cause]


def mistakes(value: Any, schema: Object, path: str = "$") -> Iterator[str]:
    """Where the value differs from the parts of JSON Schema that the schema uses."""
    if "const" in schema and value != schema["const"]:
        yield f"{path}: not {schema['const']}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value} is not in the list"
    types = {"string": str, "array": list, "object": dict, "integer": int, "boolean": bool}
    if "type" in schema and not isinstance(value, types[schema["type"]]):
        yield f"{path}: no {schema['type']}"
    for number, item in enumerate(value if "items" in schema else ()):
        yield from mistakes(item, schema["items"], f"{path}[{number}]")
    if "properties" in schema:
        yield from (f"{path}: lacks {key}" for key in schema["required"] if key not in value)
        for key, part in value.items():
            if key not in schema["properties"]:
                yield f"{path}.{key}: unknown"
            else:
                yield from mistakes(part, schema["properties"][key], f"{path}.{key}")


def test_the_checker_finds_mistakes() -> None:
    wrong = {"apiVersion": "v2", "kind": "Explanation", "more": 1, "next": [{"text": 3}]}
    assert {each.partition(":")[0] for each in mistakes(wrong, SCHEMA)} >= {
        "$.apiVersion",
        "$.more",
        "$.next[0]",
        "$.next[0].text",
    }


def test_explanations_have_the_form_of_the_schema() -> None:
    pods = (failed("a", 1, ended=5), deleted("b"), waiting("InvalidImageName"))
    for explanation in (explain(old(), *pods), explain(finished("Complete", "CompletionsReached"))):
        encoded = msgspec.json.decode(msgspec.json.encode(explanation.as_object()))
        assert list(mistakes(encoded, SCHEMA)) == []
