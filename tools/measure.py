# SPDX-License-Identifier: Apache-2.0
"""Print the code measures of `src`, or of `tests`, beside their targets.

    python -m tools.measure [--tests] [PREFIX ...]
    python -m tools.measure --list participles [--tests] [PREFIX ...]

`--list` prints the places, so that a contributor can work them off. PREFIX is
a file or a folder, as in `src/refloat/agent`: only what lies there is reported,
but references and class names are still counted over the whole tree. The
measures only count. Rules that fail a build are in `tests/architecture`.
"""

import argparse
import ast
import gc
import io
import os
import re
import signal
import statistics
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]

# The names that the house style lists: they say what happened to a thing, not what it is.
STYLE_PARTICIPLES = frozenset(
    ("found", "made", "held", "told", "asked", "seen", "given", "wanted", "meant")
)

# The same habit with other verbs. Words of the field are not here: failed, succeeded, created,
# deleted, expected, allowed, required, observed, encoded, decoded, parsed, merged, done, bound.
# fmt: off
OTHER_PARTICIPLES = frozenset((
    "begun", "broken", "brought", "built", "caught", "chosen", "drawn", "felt", "forgotten",
    "gone", "got", "grown", "heard", "hidden", "kept", "known", "laid", "left", "lost", "met",
    "read", "said", "sent", "shown", "spent", "spoken", "stood", "stuck", "taken", "thrown",
    "understood", "woken", "written", "answered", "awaited", "called", "counted", "doomed",
    "ended", "judged", "listed", "looked", "named", "noted", "placed", "promised", "refused",
    "settled", "tried", "unwanted", "watched",
))
# fmt: on
PARTICIPLES = STYLE_PARTICIPLES | OTHER_PARTICIPLES

NOBODY = frozenset(("nobody", "somebody", "whoever"))
TELL = frozenset(("tell", "tells", "told", "say", "says", "said"))
IT = frozenset(("it", "its"))

_WORD = re.compile(r"[A-Za-z][\w']*")
# Comments that only programs read.
_PRAGMA = re.compile(r"#\s*(?:SPDX-|noqa|type:|fmt:|pragma:)")
# Ids of facts, as in `behaviour C8.4`.
_FACT = re.compile(r"\b[A-E]\d{1,2}\.\d{1,2}\b")

# House style: a private helper below this size that has one caller is written in place.
SMALL_LINES = 4
WIDTH = 80
# Enough to see where the long ones are; `--list classes` prints all names.
LARGEST = 5
MOST_USED_CLASSES = 12


class Place(NamedTuple):
    path: str
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.name}"


@dataclass
class Function:
    place: Place
    lines: int
    # The class that has this method; empty for a function of a module.
    owner: str
    nested: bool
    parameters: list[str]
    # Each name that the function binds, with the line of the first binding.
    locals: dict[str, int] = field(default_factory=dict)

    @property
    def private(self) -> bool:
        """Whether this is a private function of a module or class."""
        name = self.place.name
        return name.startswith("_") and not name.endswith("__") and not self.nested


class Reference(NamedTuple):
    """One use of a private name; `owner` is the class whose `self` has it, if any."""

    path: str
    name: str
    owner: str
    attribute: bool


@dataclass
class Source:
    path: str
    lines: int
    functions: list[Function] = field(default_factory=list)
    classes: list[Place] = field(default_factory=list)
    references: Counter[Reference] = field(default_factory=Counter)
    # Comments and docstrings, line by line.
    prose: list[tuple[int, str]] = field(default_factory=list)
    facts: list[Place] = field(default_factory=list)


class _Scanner(ast.NodeVisitor):
    """Fills a Source from the syntax tree of its file."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._function: Function | None = None
        self._owner = ""

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._source.classes.append(Place(self._source.path, node.lineno, node.name))
        self._enter(node, None, node.name)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        arguments = node.args
        parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        parameters += [each for each in (arguments.vararg, arguments.kwarg) if each]
        function = Function(
            place=Place(self._source.path, node.lineno, node.name),
            lines=(node.end_lineno or node.lineno) - node.lineno + 1,
            owner="" if self._function else self._owner,
            nested=self._function is not None,
            parameters=[each.arg for each in parameters],
        )
        self._source.functions.append(function)
        self._enter(node, function, self._owner)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def _enter(self, node: ast.AST, function: Function | None, owner: str) -> None:
        outer = self._function, self._owner
        self._function, self._owner = function, owner
        self.generic_visit(node)
        self._function, self._owner = outer

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self._bind(node.id, node.lineno)
        elif node.id.startswith("_"):
            self._source.references[Reference(self._source.path, node.id, "", False)] += 1

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr.startswith("_") and isinstance(node.ctx, ast.Load):
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            owner = self._owner if own else ""
            self._source.references[Reference(self._source.path, node.attr, owner, True)] += 1
        self.visit(node.value)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self._bind(node.name, node.lineno)
        self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs | ast.MatchStar) -> None:
        self._bind(node.name, node.lineno)
        self.generic_visit(node)

    visit_MatchStar = visit_MatchAs  # noqa: N815

    def visit_Expr(self, node: ast.Expr) -> None:
        """A statement that is only a string: the docstring of a module, function or field."""
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            self._source.prose += enumerate(node.value.value.split("\n"), node.lineno)
        else:
            self.visit(node.value)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Has no children; saves the time of looking for them."""

    def _bind(self, name: str | None, line: int) -> None:
        if self._function and name:
            self._function.locals.setdefault(name, line)


def _comments(text: str) -> Iterable[tuple[int, str]]:
    if "#" not in text.partition("\n")[2]:  # the licence alone
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not _PRAGMA.match(token.string):
            yield token.start[0], token.string


def scan(path: str, text: str) -> Source:
    """Everything that the measures need from one file."""
    lines = text.splitlines()
    source = Source(path, len(lines))
    _Scanner(source).visit(ast.parse(text, filename=path))
    source.prose += _comments(text)
    source.prose.sort()
    if _FACT.search(text):
        source.facts = [
            Place(path, number, fact)
            for number, line in enumerate(lines, 1)
            for fact in _FACT.findall(line)
        ]
    return source


def _scan_file(path: str) -> Source:
    return scan(path, (ROOT / path).read_text())


def files(tree: str) -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / tree).rglob("*.py"))


def _scan_classes(path: str) -> Source:
    tree = ast.parse((ROOT / path).read_bytes(), filename=path)
    classes = [each for each in ast.walk(tree) if isinstance(each, ast.ClassDef)]
    return Source(path, 0, classes=[Place(path, each.lineno, each.name) for each in classes])


def read(paths: Sequence[str], scan_file: Callable[[str], Source] = _scan_file) -> list[Source]:
    # Syntax trees have no cycles, and the collector would double the time to build them.
    with ProcessPoolExecutor(os.cpu_count(), initializer=gc.disable) as pool:
        return list(pool.map(scan_file, paths, chunksize=16))


# The counters


def participle_locals(
    functions: Iterable[Function], participles: frozenset[str] = PARTICIPLES
) -> list[list[Place]]:
    """The local variables with a participle for a name, grouped by function."""
    groups = (
        [
            Place(function.place.path, line, name)
            for name, line in sorted(function.locals.items(), key=lambda item: item[1])
            if name.lstrip("_") in participles and name not in function.parameters
        ]
        for function in functions
    )
    return [places for places in groups if places]


def participle_parameters(functions: Iterable[Function]) -> list[list[Place]]:
    groups = (
        [
            function.place._replace(name=f"{function.place.name}({name})")
            for name in function.parameters
            if name.lstrip("_") in PARTICIPLES
        ]
        for function in functions
    )
    return [places for places in groups if places]


def words(sources: Iterable[Source]) -> Iterable[Place]:
    """Each word of the comments and docstrings, in lower case."""
    for source in sources:
        for line, text in source.prose:
            for word in _WORD.findall(text):
                yield Place(source.path, line, word.lower().partition("'")[0])


def _private(sources: Iterable[Source]) -> list[Function]:
    return [each for source in sources for each in source.functions if each.private]


def once_by_name(sources: Sequence[Source]) -> list[Function]:
    """The private functions whose name the whole tree uses exactly once."""
    uses: Counter[str] = Counter()
    for source in sources:
        for reference, count in source.references.items():
            uses[reference.name] += count
    return [each for each in _private(sources) if uses[each.place.name] == 1]


def once_in_scope(sources: Sequence[Source]) -> list[Function]:
    """The private functions with exactly one reference, whatever else has the same name."""
    by_name: dict[str, list[Function]] = defaultdict(list)
    for function in _private(sources):
        by_name[function.place.name].append(function)
    uses: Counter[Place] = Counter()
    for source in sources:
        for reference, count in source.references.items():
            for function in _referents(reference, by_name.get(reference.name, [])):
                uses[function.place] += count
    return [each for each in _private(sources) if uses[each.place] == 1]


def _referents(reference: Reference, functions: list[Function]) -> list[Function]:
    """The functions of this name that the reference can mean, the nearest only."""
    here = [each for each in functions if each.place.path == reference.path]
    if not reference.attribute:
        return [each for each in here if not each.owner] or here
    methods = [each for each in here if each.owner]
    own = [each for each in methods if each.owner == reference.owner]
    return own or methods or functions


def duplicate_classes(sources: Iterable[Source]) -> dict[str, list[Place]]:
    """The class names that stand for several classes, the most used first."""
    places: dict[str, list[Place]] = defaultdict(list)
    for source in sources:
        for place in source.classes:
            places[place.name].append(place)
    duplicates = [(name, each) for name, each in places.items() if len(each) > 1]
    return dict(sorted(duplicates, key=lambda item: (-len(item[1]), item[0])))


# The report


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


def _measure(name: str, value: str, target: str = "", verdict: str = "") -> None:
    print(f"{name:<46}{value:>12}{target and 'target ' + target:>16}{verdict:>6}".rstrip())


def _measure_below(name: str, value: float, bound: float, unit: str = "") -> None:
    verdict = "ok" if value < bound else "over"
    _measure(name, f"{value:.1f}{unit}", f"< {bound:g}{unit}", verdict)


@dataclass
class Tree:
    """The sources of `src` or `tests`, and those among them that the report covers."""

    name: str
    sources: list[Source]
    selection: list[Source]
    # For tests: the sources of `src`, with their classes only.
    neighbours: list[Source]

    @property
    def paths(self) -> set[str]:
        return {source.path for source in self.selection}

    @property
    def functions(self) -> list[Function]:
        return [each for source in self.selection for each in source.functions]


def _report_names(tree: Tree) -> None:
    functions, total = tree.functions, len(tree.functions)
    locals_ = len(participle_locals(functions))
    style = len(participle_locals(functions, STYLE_PARTICIPLES))
    _measure_below(
        f"functions with participle locals ({locals_})", _percent(locals_, total), 2, " %"
    )
    _measure(f"  with one of style.md's nine ({style})", f"{_percent(style, total):.1f} %")
    parameters = len(participle_parameters(functions))
    share = f"{_percent(parameters, total):.1f} %"
    _measure(f"  with participle parameters ({parameters})", share)
    private = sum(1 for each in functions if each.private)
    once = _within(tree, once_by_name)
    share_once = _percent(len(once), private)
    _measure_below(f"private functions used once ({len(once)} of {private})", share_once, 12, " %")
    small = sum(1 for each in once if each.lines < SMALL_LINES)
    _measure(f"  of under {SMALL_LINES} lines ({small})", f"{_percent(small, private):.1f} %")
    scope = len(_within(tree, once_in_scope))
    _measure(f"  in their own scope ({scope})", f"{_percent(scope, private):.1f} %")


def _within(tree: Tree, count: Callable[[Sequence[Source]], list[Function]]) -> list[Function]:
    return [each for each in count(tree.sources) if each.place.path in tree.paths]


def _report_words(tree: Tree) -> None:
    counts = Counter(place.name for place in words(tree.selection))
    total = counts.total()
    print(f"\nper 1,000 of the {total:,} words of comments and docstrings")
    rows: list[tuple[str, frozenset[str], float | None]] = [
        ("nobody, somebody, whoever", NOBODY, 0.3),
        ("tell, tells, told, say, says, said", TELL, None),
        ("it, its", IT, 20),
    ]
    for name, family, bound in rows:
        count = sum(counts[word] for word in family)
        label, rate = f"  {name} ({count})", 10 * _percent(count, total)
        if bound is None:
            _measure(label, f"{rate:.1f}")
        else:
            _measure_below(label, rate, bound)


def _report_classes(title: str, sources: Sequence[Source], paths: set[str]) -> None:
    duplicates = _duplicates_here(sources, paths)
    excess = {name: places for name, places in duplicates.items() if len(places) > 2}
    print()
    _measure(f"class names of several classes, {title}", str(len(duplicates)))
    _measure("  of more than two", str(len(excess)), "0", "over" if excess else "ok")
    for name, places in list(excess.items())[:MOST_USED_CLASSES]:
        print(_fit(f"  {len(places):>4} {name}: {', '.join(_short(each) for each in places)}"))
    if len(excess) > MOST_USED_CLASSES:
        print(f"       and {len(excess) - MOST_USED_CLASSES} more (--list classes)")


def _short(place: Place) -> str:
    return place.path.removeprefix("src/refloat/").removesuffix(".py")


def _fit(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 3] + "..."


def _duplicates_here(sources: Iterable[Source], paths: set[str]) -> dict[str, list[Place]]:
    duplicates = duplicate_classes(sources)
    return {
        name: places
        for name, places in duplicates.items()
        if any(place.path in paths for place in places)
    }


def _report_sizes(tree: Tree) -> None:
    sources = [
        (each.lines, each.path.removeprefix("src/refloat/"))
        for each in tree.selection
        if each.lines
    ]
    functions = [(each.lines, f"{_short(each.place)} {each.place.name}") for each in tree.functions]
    for name, sizes in (("files", sources), ("functions", functions)):
        if len(sizes) < 2:
            continue
        counts = [size for size, _ in sizes]
        decile = statistics.quantiles(counts, n=10, method="inclusive")[-1]
        print(f"\nlines of {name}: median {statistics.median(counts):g}, ", end="")
        print(f"90th percentile {decile:.0f}, maximum {max(counts)}")
        for size, place in sorted(sizes, key=lambda item: (-item[0], item[1]))[:LARGEST]:
            print(_fit(f"  {size:>4} {place}"))


def _report_lines() -> None:
    packages: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    for tree in ("src", "tests"):
        for path in files(tree):
            lines = len((ROOT / path).read_text().splitlines())
            totals[tree] += lines
            if tree == "src":
                packages["/".join(Path(path).parts[2:-1][:1])] += lines
    print(f"\nlines: src {totals['src']:,}, tests {totals['tests']:,}")
    cells = [f"{name or '.':<12}{lines:>7,}" for name, lines in packages.most_common()]
    for start in range(0, len(cells), 3):
        print("  " + "     ".join(cells[start : start + 3]))


def report(tree: Tree) -> None:
    """Print all measures."""
    lines = sum(source.lines for source in tree.selection)
    print(f"{tree.name}: {len(tree.selection)} files, {lines:,} lines,", end=" ")
    print(f"{len(tree.functions):,} functions\n")
    _report_names(tree)
    _report_words(tree)
    _report_classes(tree.name, tree.sources, tree.paths)
    if tree.neighbours:
        _report_classes("src and tests", [*tree.neighbours, *tree.sources], tree.paths)
    _report_sizes(tree)
    _report_lines()
    facts = [place for source in tree.selection for place in source.facts]
    print(f"\nids of facts (A4.8): {len(facts)} in {len({each.path for each in facts})} files")


# The lists


def _list_participles(tree: Tree) -> list[str]:
    return [str(place) for group in participle_locals(tree.functions) for place in group]


def _list_parameters(tree: Tree) -> list[str]:
    return [str(place) for group in participle_parameters(tree.functions) for place in group]


def _list_once(tree: Tree, count: Callable[[Sequence[Source]], list[Function]]) -> list[str]:
    return [f"{each.place} ({each.lines} lines)" for each in _within(tree, count)]


def _list_classes(tree: Tree) -> list[str]:
    duplicates = _duplicates_here([*tree.neighbours, *tree.sources], tree.paths)
    return [f"{place} ({len(places)})" for places in duplicates.values() for place in places]


def _list_words(tree: Tree, family: frozenset[str]) -> list[str]:
    return [str(place) for place in words(tree.selection) if place.name in family]


def _list_facts(tree: Tree) -> list[str]:
    return [str(place) for source in tree.selection for place in source.facts]


LISTS: dict[str, Callable[[Tree], list[str]]] = {
    "classes": _list_classes,
    "ids": _list_facts,
    "it": lambda tree: _list_words(tree, IT),
    "once": lambda tree: _list_once(tree, once_by_name),
    "once-in-scope": lambda tree: _list_once(tree, once_in_scope),
    "parameters": _list_parameters,
    "participles": _list_participles,
    "words": lambda tree: _list_words(tree, NOBODY | TELL),
}


def _is_below(path: str, prefixes: Sequence[str]) -> bool:
    return not prefixes or any(path == each or path.startswith(f"{each}/") for each in prefixes)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tests", action="store_true", help="measure tests instead of src")
    parser.add_argument("--list", choices=sorted(LISTS), help="print the places of one measure")
    parser.add_argument("prefix", nargs="*", help="report on these files or folders only")
    options = parser.parse_args(arguments)
    prefixes = [each.rstrip("/") for each in options.prefix]
    name = "tests" if options.tests else "src"
    paths = files(name)
    selection = {path for path in paths if _is_below(path, prefixes)}
    if not selection:
        parser.error(f"no Python files of {name} in {' '.join(prefixes)}")
    sources = read(paths)
    tree = Tree(
        name=name,
        sources=sources,
        selection=[each for each in sources if each.path in selection],
        neighbours=read(files("src"), _scan_classes) if options.tests else [],
    )
    if not options.list:
        report(tree)
        return
    for line in LISTS[options.list](tree):
        print(line)


if __name__ == "__main__":
    # A reader such as `head` may stop early.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    main()
