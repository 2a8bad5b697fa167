# SPDX-License-Identifier: Apache-2.0
"""The scenarios of `refloat demo` that make pods fail, many on one cluster, and their table.

`python -m tests.e2e.failures --write` plays all of them and writes what was
observed into docs/failures.md; without `--write` it only prints it.
"""

import argparse
import asyncio
import os
import re
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from refloat.base import log
from refloat.base.clock import RealClock
from refloat.base.rand import Rand
from refloat.demo.failures import disconnected, disruptions, node_endings, pending, replacement
from refloat.demo.failures.case import Case
from refloat.demo.failures.cases import CASES
from refloat.demo.failures.end import FIELDS, TITLES, End
from refloat.demo.failures.scene import Scene
from refloat.demo.line import Line
from refloat.demo.stage import Setting, Stage
from tests.e2e import kubectl

DOCUMENT = Path(__file__).parents[2] / "docs" / "failures.md"

MARK = "<!-- All below is written by `python -m tests.e2e.failures --write`. -->\n"

# Those that share a cluster; each has nodes that it alone does something to.
GROUPS: dict[str, tuple[Case, ...]] = {
    "control plane": (
        *disruptions.CASES,
        *(each for each in disconnected.CASES if each.name != "node-lost"),
        *pending.CASES,
        *replacement.CASES,
    ),
    "node": node_endings.CASES,
    "no taint eviction": tuple(each for each in disconnected.CASES if each.name == "node-lost"),
}


# -- playing -----------------------------------------------------------------------


async def play(cases: Sequence[Case], lines: list[Line]) -> dict[str, End]:
    """How all of them end, at once on one cluster; each raises if that is not as it says."""
    (controllers,) = {each.setting.controllers for each in cases}
    nodes = {node.name: node for each in cases for node in each.setting.nodes}
    setting = Setting(controllers, tuple(nodes.values()))
    with tempfile.TemporaryDirectory(prefix="refloat-failures-") as folder:
        data_dir = Path(folder) / "data"
        stage = Stage(data_dir, RealClock(), Rand(), lines.append, pace=0, setting=setting)
        async with stage, asyncio.TaskGroup() as group:
            playing = {each.name: group.create_task(_drained(each).play(stage)) for each in cases}
    return {name: task.result() for name, task in playing.items()}


def _drained(case: Case) -> Case:
    """The drain by kubectl itself."""
    if case.name != "drain":
        return case
    return replace(case, act=partial(disruptions.drain, by=kubectl_drain))


async def kubectl_drain(scene: Scene, node: str, pod: str) -> None:
    where = {"KUBECONFIG": str(scene.stage.kubeconfig), "HOME": str(scene.stage.folder("home"))}
    process = await asyncio.create_subprocess_exec(
        *(str(kubectl.path()), "drain", node),
        env={**where, "PATH": os.environ["PATH"]},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    told, _ = await process.communicate()
    assert process.returncode == 0, told.decode()
    assert f"pod/{pod} evicted" in told.decode()


# -- telling -----------------------------------------------------------------------

OVERVIEW = ("status", "phase", "reason", "container", "disruption", "job", "replaced")

WINDOWS = """### Container memory limit exceeded, on Windows

Not reproducible here: nodes of Refloat run on Linux. According to KEP-3329 nothing
tells of the limit: STATUS and reason of the container are `Error`, its exit code is 1,
reason and message of the pod are empty. A rule on exit code 1 is all there is.
"""


def document(ends: Mapping[str, End]) -> str:
    """The part of the document that is written by a run."""
    parts = [MARK, "## At a glance\n", "\n".join(_overview(ends)), "\n## Each scenario\n"]
    for case in CASES:
        parts.append(section(case, ends[case.name]))
        if case.name == "memory-limit":
            parts.append(WINDOWS)
    return "\n".join(parts)


def _overview(ends: Mapping[str, End]) -> Iterable[str]:
    yield f"| scenario | {' | '.join(TITLES[each] for each in OVERVIEW)} |"
    yield "|---" * (len(OVERVIEW) + 1) + "|"
    for case in CASES:
        yield glance(case, ends[case.name])


def glance(case: Case, found: End) -> str:
    """A row: the Job's reason without its message."""
    values = {name: getattr(found, name) for name in OVERVIEW}
    values["job"] = ": ".join(values["job"].split(": ")[:2])
    cells = [f"[{case.heading}](#{anchor(case.heading)})", *map(_code, values.values())]
    return f"| {' | '.join(cells)} |"


def anchor(heading: str) -> str:
    """By what a heading can be linked to."""
    return re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")


def section(case: Case, found: End) -> str:
    """A scenario with all that was observed beside what the KEP says."""
    lines = [f"### {case.heading}", "", _wrapped(f"`refloat demo {case.name}`: {case.how}"), ""]
    lines += [f"| | {case.source} | observed |", "|---|---|---|"]
    for name in FIELDS:
        said = _code(case.kep[name]) if name in case.kep else ""
        lines.append(f"| {TITLES[name]} | {said} | {_code(getattr(found, name))} |")
    lines.append("")
    for why, names in _reasons(case).items():
        what = ", ".join(TITLES[each] for each in names)
        lines.append(_wrapped(f"* {what}: {why}.", subsequent_indent="  "))
    return "\n".join([*lines, ""] if case.differs else lines)


def _reasons(case: Case) -> dict[str, list[str]]:
    """Fields that differ for one reason together."""
    found: dict[str, list[str]] = {}
    for name, each in case.differs.items():
        found.setdefault(each.why, []).append(name)
    return found


def _wrapped(text: str, subsequent_indent: str = "") -> str:
    return textwrap.fill(text, 84, break_on_hyphens=False, subsequent_indent=subsequent_indent)


def _code(text: str) -> str:
    return f"`{text}`" if text else "(empty)"


async def _observe() -> dict[str, End]:
    ends: dict[str, End] = {}
    for cases in GROUPS.values():
        ends |= await play(cases, [])
    return ends


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.failures")
    parser.add_argument("--write", action="store_true", help=f"write {DOCUMENT.name}")
    chosen = parser.parse_args()
    log.setup(level="error")  # nodes that are lost are lost on purpose
    text = document(asyncio.run(_observe()))
    if not chosen.write:
        sys.stdout.write(text)
        return
    by_hand = DOCUMENT.read_text().partition(MARK)[0]
    DOCUMENT.write_text(by_hand + text)


if __name__ == "__main__":
    main()
