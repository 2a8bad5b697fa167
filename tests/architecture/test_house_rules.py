# SPDX-License-Identifier: Apache-2.0
"""What of the house style a machine can hold."""

import ast
import tomllib
from pathlib import Path

from tests.architecture import sources
from tests.architecture.sources import MODULES, PACKAGE, ROOT, TESTS, TOOLS

LICENSE = "# SPDX-License-Identifier: Apache-2.0"

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60

# A name without a meaning attracts everything.
NAMELESS = {"utils", "util", "helpers", "helper", "common", "misc", "shared"}

UNFINISHED = ("TO" + "DO", "FIX" + "ME", "XX" + "X:")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def _functions(path: Path) -> list[Function]:
    return [each for each in ast.walk(sources.tree(path)) if isinstance(each, Function)]


def test_there_are_modules_to_look_at() -> None:
    assert len(MODULES) > 100
    assert len(TESTS) > 40


def test_every_file_names_its_licence_first() -> None:
    files = [path for path in (*MODULES, *TESTS, *TOOLS) if path.stat().st_size]
    wrong = [sources.name(path) for path in files if _lines(path)[0] != LICENSE]
    assert wrong == []


def test_every_module_says_why_it_exists() -> None:
    wrong = [sources.name(path) for path in MODULES if not ast.get_docstring(sources.tree(path))]
    assert wrong == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    parts = [(path, part) for path in (*MODULES, *TESTS, *TOOLS) for part in path.parts]
    wrong = [sources.name(path) for path, part in parts if part.removesuffix(".py") in NAMELESS]
    assert wrong == []


def test_no_file_is_too_long_to_be_read_at_once() -> None:
    lengths = {sources.name(path): len(_lines(path)) for path in (*MODULES, *TESTS, *TOOLS)}
    assert {name: length for name, length in lengths.items() if length > MAX_FILE_LINES} == {}


def test_no_function_is_too_long_to_be_read_at_once() -> None:
    wrong = [
        f"{sources.name(path)}:{each.lineno} {each.name}"
        for path in MODULES
        for each in _functions(path)
        if (each.end_lineno or 0) - each.lineno + 1 > MAX_FUNCTION_LINES
    ]
    assert wrong == []


def test_nothing_is_left_for_later_in_a_comment() -> None:
    wrong = [
        f"{sources.name(path)}:{number}"
        for path in (*MODULES, *TESTS, *TOOLS)
        for number, line in enumerate(_lines(path), 1)
        if any(mark in line for mark in UNFINISHED)
    ]
    assert wrong == []


def test_every_test_directory_is_a_package() -> None:
    """Else two test modules of one name cannot live side by side."""
    folders = {path.parent for path in TESTS}
    assert [sources.name(each) for each in folders if not (each / "__init__.py").exists()] == []


def test_every_package_has_its_place_among_the_layers() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(each for each in contracts["contracts"] if each["type"] == "layers")
    assert layers["exhaustive"] is True
    packages = {part.strip(" ()") for layer in layers["layers"] for part in layer.split("|")}
    there = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert there - packages == set()
