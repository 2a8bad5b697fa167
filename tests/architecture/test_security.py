# SPDX-License-Identifier: Apache-2.0
"""SECURITY.md claims nothing without a test: each row of the tables names an existing test."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture import sources
from tests.architecture.sources import ROOT

SECURITY = (ROOT / "SECURITY.md").read_text()

# A file and the name of a test in that file, as pytest writes them.
_CITATION = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def _tables() -> Iterator[list[str]]:
    """The rows of each table whose last column is headed "test"."""
    for block in re.findall(r"(?:^\|.*\n)+", SECURITY, re.MULTILINE):
        head, _, *rows = block.splitlines()
        if head.rstrip(" |").endswith("test"):
            yield rows


def _rows() -> list[str]:
    return [row for rows in _tables() for row in rows]


def _functions(path: str) -> set[str]:
    tree = sources.tree(ROOT / path)
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {each.name for each in ast.walk(tree) if isinstance(each, functions)}


def test_there_are_tables() -> None:
    assert len(_rows()) >= 50


@pytest.mark.parametrize("row", _rows(), ids=lambda row: row[:60])
def test_a_row_names_a_test_that_exists(row: str) -> None:
    citations = _CITATION.findall(row)
    assert citations, "the row names no test"
    missing = [
        f"{path}::{name}"
        for path, name in citations
        if not (ROOT / path).is_file() or name not in _functions(path)
    ]
    assert missing == []
