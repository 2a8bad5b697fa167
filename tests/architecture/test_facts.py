# SPDX-License-Identifier: Apache-2.0
"""Ids such as A4.8 name facts in docs/kubernetes-behaviour.md, and users never read an id."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture import sources
from tests.architecture.sources import DOCUMENTS, MODULES, PACKAGE, ROOT, TESTS, TOOLS
from tests.cases import cases

FACTS = ROOT / "docs" / "kubernetes-behaviour.md"

ANCHORS = re.findall(r'<a id="([^"]+)"></a>', FACTS.read_text())

# A fact: A4.8, F.1. Parts F, G and H have no sections. A number such as 1E3.5 or a path is none.
_FACT = r"(?<![\w%|./])(?:[A-E][0-9]{1,2}\.[0-9]{1,2}|F\.[0-9])(?!\w|\.[0-9])"

# A section, or a fact of the parts G and H: A4, G7. The whole of a quoted text such as "E1"
# is data, and so is a piece of a pattern, of an escaped address or of a longer word.
_BARE = r"[A-EGH][0-9]{1,2}(?![\w%]|\.[0-9])"
_SECTION = rf"(?<![\w%|./-])(?:(?<![\"']){_BARE}|{_BARE}(?![\"']))"

# A part, or one of the terms that come first: `behaviour F`, `behaviour 0.5`.
_PART = r"(?<=[Bb]ehaviour )(?:0\.[0-9]|[A-H])\b"

IN_TEXT = re.compile(f"{_FACT}|{_SECTION}|{_PART}")
IN_DATA = re.compile(_FACT)

DATA = sorted(
    path
    for folder in ("tests", "examples")
    for suffix in ("*.json", "*.yaml")
    for path in (ROOT / folder).rglob(suffix)
)

# Readers of these work on Refloat, or compare Refloat with Kubernetes.
ABOUT_FACTS = {"CONTRIBUTING.md", "docs/compatibility.md", "docs/kubernetes-behaviour.md"}

FOR_USERS = [
    *(path for path in MODULES if path.relative_to(PACKAGE).parts[0] in ("cli", "demo")),
    *(path for path in DOCUMENTS if sources.name(path) not in ABOUT_FACTS),
    *sorted((ROOT / "examples").rglob("*.yaml")),
]


def ids(text: str, form: re.Pattern[str] = IN_TEXT) -> list[str]:
    return form.findall(text)


def unknown(text: str, form: re.Pattern[str] = IN_TEXT) -> list[str]:
    return [each for each in ids(text, form) if each.lower() not in ANCHORS]


def _literals(path: Path) -> Iterator[str]:
    """The texts of a module that are no docstrings: what a user may read."""
    tree = sources.tree(path)
    statements = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    for each in ast.walk(tree):
        if isinstance(each, ast.Constant) and id(each) not in statements:
            yield str(each.value)


@cases(
    "text want",
    {
        "a list": ("behaviour A4.8, C3 and G7", ["A4.8", "C3", "G7"]),
        "a range of facts": ("(A7.1-A7.5)", ["A7.1", "A7.5"]),
        "the first word of a docstring": ('"""G8."""', ["G8"]),
        "the first word of an id": ('id="D6: node pressure"', ["D6"]),
        "the whole of an id": ('id="C2.3"', ["C2.3"]),
        "parts": ("Behaviour F, F.4; behaviour 0.5", ["F", "F.4", "0.5"]),
        "a name in data": ('{"name": "E1"}', []),
        "numbers": ("1E3.5, 0xA1, KEP-36, v1.36.3, 4E2, F1.2", []),
        "addresses, patterns, codes": ("%C3%A9 [a-fA-F0-9] (Ki|E3) E501 B008", []),
    },
)
def test_ids_are_told_from_other_words(text: str, want: list[str]) -> None:
    assert ids(text) == want


def test_an_id_without_a_fact_is_noticed() -> None:
    assert unknown("behaviour A4.99, A4.8, C77 and H99") == ["A4.99", "C77", "H99"]


def test_every_fact_has_one_anchor() -> None:
    assert len(ANCHORS) > 400
    assert sorted(ANCHORS) == sorted(set(ANCHORS))
    marked = re.findall(r'^\* <a id="([^"]+)"></a>\*\*(\S+)\*\* ', FACTS.read_text(), re.MULTILINE)
    assert [anchor for anchor, fact in marked if anchor != fact.lower()] == []
    assert len(marked) == FACTS.read_text().count("\n* ")


def test_every_id_names_a_fact() -> None:
    texts = (*MODULES, *TESTS, *TOOLS, *DOCUMENTS)
    unknown_ids = {sources.name(path): unknown(path.read_text()) for path in texts}
    unknown_ids |= {sources.name(path): unknown(path.read_text(), IN_DATA) for path in DATA}
    # This file makes up ids.
    unknown_ids.pop(sources.name(Path(__file__)))
    assert {name: wrong for name, wrong in unknown_ids.items() if wrong} == {}


def test_links_between_facts_lead_to_facts() -> None:
    linked = re.findall(r"\]\(#([^)]+)\)", FACTS.read_text())
    assert set(linked) - set(ANCHORS) == set()


@pytest.mark.parametrize("path", FOR_USERS, ids=sources.name)
def test_users_read_no_ids(path: Path) -> None:
    assert ids(path.read_text()) == []


def test_no_message_has_an_id() -> None:
    texts = ((path, text) for path in MODULES for text in _literals(path))
    assert [(sources.name(path), text) for path, text in texts if ids(text)] == []
