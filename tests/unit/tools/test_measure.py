# SPDX-License-Identifier: Apache-2.0
"""The counters of the code measures."""

from textwrap import dedent

import pytest
from tools import measure


def _source(text: str, path: str = "src/refloat/pods.py") -> measure.Source:
    return measure.scan(path, dedent(text))


def _names(functions: list[measure.Function]) -> list[str]:
    return [each.place.name for each in functions]


BINDINGS = {
    "an assignment": "found = 1",
    "a part of a tuple": "pod, found = 1, 2",
    "an annotation": "found: int = 1",
    "a loop": "for found in (): pass",
    "a with statement": "with open('x') as found: pass",
    "a walrus": "if (found := 1): pass",
    "a comprehension": "return [found for found in ()]",
    "an except clause": "try: pass\n    except ValueError as found: pass",
    "a match": "match 1:\n        case found: pass",
    "a private name": "_found = 1",
}


@pytest.mark.parametrize("binding", BINDINGS.values(), ids=BINDINGS)
def test_a_participle_that_a_function_binds_is_counted(binding: str) -> None:
    source = _source(f"def look():\n    {binding}\n")
    [[place]] = measure.participle_locals(source.functions)
    assert place.name.lstrip("_") == "found"
    assert place.line >= 2


OTHER_NAMES = {
    "a parameter": "def look(found):\n    found = found or 1\n",
    "a use of a global name": "def look():\n    return found\n",
    "a global name": "found = 1\n",
    "an attribute": "def look(self):\n    self.found = 1\n",
    "a field of a class": "class Pod:\n    found = 1\n",
    "a field of a class in a function": "def look():\n    class Pod:\n        found = 1\n",
    "a longer name": "def look():\n    found_pod = 1\n",
}


@pytest.mark.parametrize("text", OTHER_NAMES.values(), ids=OTHER_NAMES)
def test_only_locals_are_counted(text: str) -> None:
    assert measure.participle_locals(_source(text).functions) == []


def test_a_local_belongs_to_the_innermost_function_alone() -> None:
    source = _source("def outer():\n    def inner():\n        found = made = 1\n")
    [places] = measure.participle_locals(source.functions)
    assert [str(each) for each in places] == [
        "src/refloat/pods.py:3 found",
        "src/refloat/pods.py:3 made",
    ]


def test_participle_parameters_are_a_number_of_their_own() -> None:
    source = _source("def look(pod, *, found):\n    pass\n")
    [[place]] = measure.participle_parameters(source.functions)
    assert place.name == "look(found)"


def test_words_come_from_comments_and_docstrings_alone() -> None:
    source = _source(
        '''\
        # SPDX-License-Identifier: Apache-2.0
        """It stands here,
        and nobody's word counts."""
        import re  # noqa: F401
        NAME = "its"  # said once
        class Pod:
            phase: str
            """Its phase."""
        TEXT = "# somebody"
        '''
    )
    words = [(place.line, place.name) for place in measure.words([source])]
    assert words == [
        *((2, word) for word in ("it", "stands", "here")),
        *((3, word) for word in ("and", "nobody", "word", "counts")),
        *((5, word) for word in ("said", "once")),
        *((8, word) for word in ("its", "phase")),
    ]


PRIVATE = """\
    def _once(): pass
    def _twice(): pass
    def _never(): pass
    def public():
        def _nested(): pass
        return _once() or _twice() or _twice() or _nested()
    class Pod:
        def __init__(self): self._start()
        def _start(self): pass
        @property
        def _phase(self): return self._phase or self._phase
"""


def test_private_functions_used_once() -> None:
    sources = [_source(PRIVATE)]
    assert _names(measure.once_by_name(sources)) == ["_once", "_start"]
    assert _names(measure.once_in_scope(sources)) == ["_once", "_start"]


def test_a_name_that_two_files_use_is_used_once_only_in_scope() -> None:
    text = "def _check(): pass\ndef public(): _check()\n"
    sources = [_source(text, "src/a.py"), _source(text, "src/b.py")]
    assert measure.once_by_name(sources) == []
    assert _names(measure.once_in_scope(sources)) == ["_check", "_check"]


def test_a_method_has_the_references_of_its_own_class() -> None:
    source = _source(
        """\
        class Pod:
            def start(self): self._run()
            def _run(self): pass
        class Node:
            def start(self): self._run(), self._run()
            def _run(self): pass
        """
    )
    [function] = measure.once_in_scope([source])
    assert function.place.line == 3


def test_a_method_that_another_file_uses_has_that_reference_too() -> None:
    base = "class Base:\n    def start(self): self._run()\n    def _run(self): pass\n"
    user = "class Pod(Base):\n    def again(self): self._run()\n"
    sources = [_source(base, "src/a.py"), _source(user, "src/b.py")]
    assert measure.once_in_scope(sources) == []


def test_class_names_of_several_classes_the_most_used_first() -> None:
    sources = [
        _source("class A: pass\nclass B: pass\nclass C: pass\n", "src/a.py"),
        _source("class A: pass\nclass B:\n    class B: pass\n", "src/b.py"),
    ]
    duplicates = measure.duplicate_classes(sources)
    assert {name: [str(each) for each in places] for name, places in duplicates.items()} == {
        "B": ["src/a.py:2 B", "src/b.py:2 B", "src/b.py:3 B"],
        "A": ["src/a.py:1 A", "src/b.py:1 A"],
    }
    assert list(duplicates) == ["B", "A"]


def test_ids_of_facts_have_a_letter_and_two_numbers() -> None:
    source = _source('"""Behaviour A4.8 and C3.15; not v1.36, F1.2 or XA4.8."""\n')
    assert [each.name for each in source.facts] == ["A4.8", "C3.15"]


def test_sizes_are_lines() -> None:
    source = _source("def run():\n    pass\n\n\nasync def stop():\n    pass\n    pass\n")
    assert source.lines == 7
    assert [each.lines for each in source.functions] == [2, 3]
