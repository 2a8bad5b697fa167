# SPDX-License-Identifier: Apache-2.0
"""Policy decides and remembers nothing: all classes are values that do not change."""

import ast

from tests.architecture import sources
from tests.architecture.sources import MODULES, PACKAGE

VALUE_BASES = {"StrEnum", "Protocol", "Exception", "ValueError"}

# Classes that may change, and why a decision still depends on the arguments alone.
EXCEPTIONS = {
    "garbage/namespace_content.Remains": "one sync fills a new one, then reads it",
    "job/accounting._Scan": "local to one call",
    "job/observed.Verdicts": "computes each pod's verdict once in a sync; the verdict is the same",
    "node/phase._Tally": "local to one call",
    "scheduling/demand.Demands": "gives equal demands one object; their values are the same",
    "scheduling/fit.Room": "a decision changes only its own copy",
}


def _is_value(cls: ast.ClassDef) -> bool:
    frozen = [each for each in cls.decorator_list if isinstance(each, ast.Call)]
    keywords = [*cls.keywords, *(keyword for each in frozen for keyword in each.keywords)]
    if any(each.arg == "frozen" and ast.unparse(each.value) == "True" for each in keywords):
        return True
    return any(ast.unparse(base) in VALUE_BASES for base in cls.bases)


def test_policy_has_no_mutable_class_without_a_reason() -> None:
    root = PACKAGE / "policy"
    mutable = {
        f"{path.relative_to(root).with_suffix('')}.{each.name}"
        for path in MODULES
        if path.is_relative_to(root)
        for each in ast.walk(sources.tree(path))
        if isinstance(each, ast.ClassDef) and not _is_value(each)
    }
    assert mutable == set(EXCEPTIONS)


def test_policy_assigns_no_global() -> None:
    statements = [
        f"{sources.name(path)}:{each.lineno}"
        for path in MODULES
        if path.is_relative_to(PACKAGE / "policy")
        for each in ast.walk(sources.tree(path))
        if isinstance(each, ast.Global | ast.Nonlocal)
    ]
    assert statements == []
