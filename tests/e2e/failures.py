# SPDX-License-Identifier: Apache-2.0
"""The scenarios of `refloat demo` that make pods fail, many on one cluster, and their table.

`python -m tests.e2e.failures --write` plays all of them and writes what was
observed into docs/failures.md; without `--write` the command only prints them.
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
from refloat.demo.demo_cluster import DemoCluster, DemoSettings
from refloat.demo.failures import disconnected, disruptions, node_endings, pending, replacement
from refloat.demo.failures.case import Case
from refloat.demo.failures.case_namespace import CaseNamespace
from refloat.demo.failures.cases import CASES
from refloat.demo.failures.pod_end import FIELDS, TITLES, End
from refloat.demo.output_lines import Line
from tests.e2e import kubectl

DOCUMENT = Path(__file__).parents[2] / "docs" / "failures.md"

MARK = "<!-- All below is written by `python -m tests.e2e.failures --write`. -->\n"

# Those that share a cluster; no two of them disturb the same node.
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
    """The ends of all cases, at once on one cluster; a case that ends differently raises."""
    (controllers,) = {each.settings.controllers for each in cases}
    nodes = {node.name: node for each in cases for node in each.settings.nodes}
    settings = DemoSettings(controllers, tuple(nodes.values()))
    with tempfile.TemporaryDirectory(prefix="refloat-failures-") as folder:
        data_dir = Path(folder) / "data"
        cluster = DemoCluster(
            data_dir, RealClock(), Rand(), lines.append, pace=0, settings=settings
        )
        async with cluster, asyncio.TaskGroup() as group:
            playing = {each.name: group.create_task(_drained(each).run(cluster)) for each in cases}
    return {name: task.result() for name, task in playing.items()}


def _drained(case: Case) -> Case:
    """The drain by kubectl itself."""
    if case.name != "drain":
        return case
    return replace(case, procedure=partial(disruptions.drain, by=kubectl_drain))


async def kubectl_drain(namespace: CaseNamespace, node: str, pod: str) -> None:
    where = {
        "KUBECONFIG": str(namespace.demo.kubeconfig),
        "HOME": str(namespace.demo.folder("home")),
    }
    process = await asyncio.create_subprocess_exec(
        *(str(kubectl.path()), "drain", node),
        env={**where, "PATH": os.environ["PATH"]},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    assert f"pod/{pod} evicted" in output.decode()


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


def glance(case: Case, end: End) -> str:
    """A row: the Job's reason without the message."""
    values = {name: getattr(end, name) for name in OVERVIEW}
    values["job"] = ": ".join(values["job"].split(": ")[:2])
    cells = [f"[{case.heading}](#{anchor(case.heading)})", *map(_code, values.values())]
    return f"| {' | '.join(cells)} |"


def anchor(heading: str) -> str:
    """By what a heading can be linked to."""
    return re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")


def section(case: Case, end: End) -> str:
    """A scenario with all observations beside the claims of the KEP."""
    lines = [f"### {case.heading}", "", _wrapped(f"`refloat demo {case.name}`: {case.how}"), ""]
    lines += [f"| | {case.source} | observed |", "|---|---|---|"]
    for name in FIELDS:
        text = _code(case.kep[name]) if name in case.kep else ""
        lines.append(f"| {TITLES[name]} | {text} | {_code(getattr(end, name))} |")
    lines.append("")
    for why, names in _reasons(case).items():
        what = ", ".join(TITLES[each] for each in names)
        lines.append(_wrapped(f"* {what}: {why}.", subsequent_indent="  "))
    return "\n".join([*lines, ""] if case.differs else lines)


def _reasons(case: Case) -> dict[str, list[str]]:
    """Fields that differ for one reason together."""
    names: dict[str, list[str]] = {}
    for name, each in case.differs.items():
        names.setdefault(each.why, []).append(name)
    return names


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
    options = parser.parse_args()
    log.setup(level="error")  # nodes that are lost are lost on purpose
    text = document(asyncio.run(_observe()))
    if not options.write:
        sys.stdout.write(text)
        return
    by_hand = DOCUMENT.read_text().partition(MARK)[0]
    DOCUMENT.write_text(by_hand + text)


if __name__ == "__main__":
    main()
