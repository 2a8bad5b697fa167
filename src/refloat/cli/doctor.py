# SPDX-License-Identifier: Apache-2.0
"""`refloat doctor`"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click

from refloat.api import durations, times
from refloat.base import log
from refloat.base.clock import RealClock
from refloat.cli import explain_client, explain_output, options, output
from refloat.client import errors
from refloat.client import kubeconfig as files
from refloat.client.cluster_access import Access
from refloat.explain import doctor
from refloat.explain.doctor import ClusterObjects, Report, Trouble
from refloat.explain.explanation import count
from refloat.explain.gather import Explainer

# One screen: the worst are first, and `-o json` has all of them.
MAX_ROWS = 10


@click.command()
@options.kubeconfig
@options.context
@click.option("-n", "--namespace", default="", help="Only this namespace.")
@click.option(
    "-A",
    "--all-namespaces",
    is_flag=True,
    help="All namespaces. [default, with the right to list them; else the context's]",
)
@output.option
def command(
    *,
    kubeconfig: Path | None,
    context: str,
    namespace: str,
    all_namespaces: bool,
    form: output.Form,
) -> None:
    """Check a whole cluster: what is stuck, what is lost, what is at risk.

    Shows stuck Jobs, the worst first, pods that hang in Terminating, lost nodes
    and what runs there, Jobs that would wait for ever if a node died now, and
    the state of Refloat itself. The command only reads. Exit code 1 means that
    a person must act.

    \b
      refloat doctor
      refloat doctor -n ml
    """
    log.setup(level="warning")
    access = files.find(kubeconfig, context=context)
    fallback = "" if all_namespaces or namespace else access.namespace
    options.run(_check(access, "" if all_namespaces else namespace, fallback, form))


async def _check(access: Access, namespace: str, fallback: str, form: output.Form) -> None:
    async with explain_client.connect(access, "doctor") as client:
        explainer = Explainer(client, RealClock(), client.server_now)
        cluster = await _survey(explainer, namespace, fallback)
    report = doctor.examine(cluster)
    if form != "table":
        output.show(report.as_object(), form)
    else:
        for line in render(report, explain_output.width()):
            click.echo(line)
    if report.needs_person:
        sys.exit(1)


async def _survey(explainer: Explainer, namespace: str, fallback: str) -> ClusterObjects:
    """Of all namespaces; without the right to list them, of the fallback, if there is one."""
    try:
        return await explainer.survey(namespace)
    except errors.Forbidden:
        if not fallback:
            raise
    cluster = await explainer.survey(fallback)
    limit = f"list jobs in all namespaces: only the namespace {fallback} was read"
    return replace(cluster, limits=(limit, *cluster.limits))


def render(report: Report, columns: int) -> list[str]:
    lines = explain_output.wrapped(_summary(report), columns)
    for title, body in (
        ("Stuck Jobs", _troubles(report.jobs, columns)),
        ("Pods stuck in Terminating", _troubles(report.pods, columns)),
        ("Lost nodes", _nodes(report, columns)),
        ("At risk", _at_risk(report, columns)),
        ("Refloat", _plain(report.refloat, columns)),
        ("Not known", _plain(report.limits, columns)),
    ):
        rows = list(body)
        lines += ["", title, *rows] if rows else []
    return lines


def _summary(report: Report) -> str:
    counts = report.counts
    nodes = f", {count(counts['nodes'], 'node')}" if "nodes" in counts else ""
    totals = f"{count(counts['activeJobs'], 'active Job')}, {count(counts['pods'], 'pod')}{nodes}"
    if report.needs_person:
        return f"A person must act. {totals}."
    verdict = "Some Jobs wait, and go on by themselves." if report.jobs else "Nothing is stuck."
    return f"{verdict} {totals}."


def _troubles(troubles: Sequence[Trouble], columns: int) -> Iterator[str]:
    for each in troubles[:MAX_ROWS]:
        age = durations.show(times.span(max(0, round(each.seconds))))
        heading = f"{each.subject}: {each.finding.code}, {age} old"
        yield from explain_output.wrapped(heading, columns, "  ", "    ")
        yield from explain_output.wrapped(each.finding.verdict, columns, "    ")
    if len(troubles) > MAX_ROWS:
        yield f"  {len(troubles) - MAX_ROWS} more: use -o json"


def _nodes(report: Report, columns: int) -> Iterator[str]:
    for each in report.nodes[:MAX_ROWS]:
        pods = count(each.pods, "pod")
        text = f"{each.name}: {each.health}; {pods} may run there, {each.stuck} hang"
        yield from explain_output.wrapped(text, columns, "  ", "    ")
    if len(report.nodes) > MAX_ROWS:
        yield f"  {len(report.nodes) - MAX_ROWS} more: use -o json"


def _at_risk(report: Report, columns: int) -> Iterator[str]:
    names = report.at_risk
    if not names:
        return
    more = f" and {len(names) - MAX_ROWS} more" if len(names) > MAX_ROWS else ""
    text = (
        f"{count(len(names), 'Job')} would wait for ever if a node died now, because a pod is"
        f" replaced only after its end, and recovery may not end these pods:"
        f" {', '.join(names[:MAX_ROWS])}{more}"
    )
    yield from explain_output.wrapped(text, columns, "  ")


def _plain(lines: Sequence[str], columns: int) -> Iterator[str]:
    for each in lines:
        yield from explain_output.wrapped(each, columns, "  ", "    ")
