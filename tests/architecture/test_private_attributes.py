# SPDX-License-Identifier: Apache-2.0
"""The private attributes of dependencies that Refloat uses.

A release of a dependency may rename a private attribute without notice. So
pyproject.toml has an upper bound for each such dependency, and this module names
each attribute. If a test fails after a new bound, adapt the module in `src`.

asyncio has no bound besides Python's: the simulator alone uses these attributes,
and no process of a cluster runs the simulator.
"""

import ast
import asyncio
import importlib
import inspect
import tomllib
from pathlib import Path

import pytest
from aiohttp import web
from yarl import _parse, _url

from tests.architecture.sources import MODULES, PACKAGE, ROOT

USES: dict[type, tuple[str, ...]] = {
    # apiserver/connection.py
    web.Server: ("_connections", "_loop", "_make_request"),
    web.RequestHandler: ("_current_request", "_messages", "_request_count", "_waiter"),
    # sim/loop.py, sim/run.py, sim/task_order.py, sim/deadlock_report.py
    asyncio.BaseEventLoop: (
        "_asyncgen_finalizer_hook",
        "_asyncgen_firstiter_hook",
        "_closed",
        "_ready",
        "_run_once",
        "_stopping",
        "_task_factory",
        "_timer_handle_cancelled",
    ),
    asyncio.Handle: ("_cancelled", "_loop", "_run"),
    asyncio.Task: ("_fut_waiter", "_log_destroy_pending"),
}

# Documented in spite of the underscore: of namedtuple, os and sys.
DOCUMENTED = {"_replace", "_exit", "_getframe"}

# Refloat's own: of VirtualLoop, and of a client that sim/faulty_client.py wraps.
OWN = {"_check", "_thread", "_call", "_open"}


@pytest.mark.parametrize(
    ("type_", "name"),
    [(type_, name) for type_, names in USES.items() for name in names],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_private_attribute_exists(type_: type, name: str) -> None:
    source = "" if hasattr(type_, name) else inspect.getsource(type_)
    assert hasattr(type_, name) or f"self.{name}" in source or f'"{name}"' in source


def test_the_private_modules_of_yarl_have_the_caches_of_targets() -> None:
    """apiserver/target_caches.py"""
    for module in (_url, _parse):
        assert any(hasattr(each, "cache_clear") for each in vars(module).values())


@pytest.mark.parametrize("name", ["aiohttp", "yarl"])
def test_a_dependency_with_private_uses_has_an_upper_bound(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (requirement,) = (each for each in project["project"]["dependencies"] if each.startswith(name))
    assert ",<" in requirement


def _private_names(file: Path) -> set[str]:
    """The private names that a module reads from another object, or from a base class."""
    tree = ast.parse(file.read_text())
    names = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    }
    module = ".".join(("refloat", *file.relative_to(PACKAGE).with_suffix("").parts))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.bases:
            names |= _inherited(getattr(importlib.import_module(module), node.name, None), node)
    return names


def _inherited(type_: object, node: ast.ClassDef) -> set[str]:
    """The private attributes of foreign base classes that a class uses."""
    if not isinstance(type_, type):
        return set()
    names = {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute)
        and isinstance(each.value, ast.Name)
        and each.value.id == "self"
        and each.attr.startswith("_")
    }
    foreign = [each for each in type_.__mro__ if each.__module__.split(".")[0] in FOREIGN]
    return {name for name in names if any(hasattr(each, name) for each in foreign)}


FOREIGN = ("aiohttp", "asyncio", "click", "msgspec", "prometheus_client", "uvloop", "yarl")


def test_every_private_use_is_in_the_table() -> None:
    known = {name for names in USES.values() for name in names} | DOCUMENTED | OWN
    unknown = {
        f"{file.relative_to(PACKAGE)}: {name}"
        for file in MODULES
        for name in _private_names(file) - known
    }
    assert not unknown
