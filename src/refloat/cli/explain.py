# SPDX-License-Identifier: Apache-2.0
"""`refloat explain`"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from refloat.base import log
from refloat.base.clock import RealClock
from refloat.base.errors import RefloatError, UsageError
from refloat.cli import completers, explain_client, explain_output, options, output
from refloat.client import errors
from refloat.client import kubeconfig as files
from refloat.client.cluster_access import Access
from refloat.explain import gather
from refloat.explain.explanation import Explanation
from refloat.explain.gather import Explainer

# How often `--watch` reads again: a person sees a change soon, and the server hardly notices.
WATCH_SECONDS = 2.0


@click.command()
@click.argument(
    "what",
    nargs=-1,
    metavar="[job/NAME|pod/NAME|node/NAME|cronjob/NAME]",
    shell_complete=completers.objects,
)
@click.option(
    "-f",
    "--filename",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Explain the Jobs, Pods, Nodes and CronJobs in this manifest.",
)
@options.kubeconfig
@options.context
@click.option("-n", "--namespace", default="", help="The namespace. [default: the context's]")
@click.option("-A", "--all-namespaces", is_flag=True, help="With jobs: the Jobs of all namespaces.")
@click.option("-w", "--watch", is_flag=True, help="Print again after each change of the state.")
@output.option
def command(
    *,
    what: tuple[str, ...],
    file: Path | None,
    kubeconfig: Path | None,
    context: str,
    namespace: str,
    all_namespaces: bool,
    watch: bool,
    form: output.Form,
) -> None:
    """Show why a Job, pod, node or CronJob is in its state.

    The output has the verdict with a stable code, the next step and its
    component, commands for you, the attempts of the Job, and the evidence. The
    cluster needs no component of Refloat. The rights of a reader of the
    namespace are enough; the output lists missing rights. Examples:

    \b
      refloat explain job/train
      refloat explain pod/train-0-x7k2p -n ml
      refloat explain job/train --watch
      refloat explain jobs -A
    """
    log.setup(level="warning")
    access = files.find(kubeconfig, context=context)
    namespace = namespace or access.namespace
    requests = [(each, namespace) for each in _names(what)]
    if file is not None:
        requests += _named_in(file, namespace)
    if not requests:
        raise UsageError("expected job/NAME, pod/NAME, node/NAME, cronjob/NAME, jobs, or -f FILE")
    if [name for name, _ in requests] == ["jobs"]:
        options.run(_list_jobs(access, "" if all_namespaces else namespace, form))
        return
    if all_namespaces:
        raise UsageError("-A goes with `refloat explain jobs` alone")
    options.run((_watch if watch else _explain)(access, requests, form))


def _names(what: Sequence[str]) -> list[str]:
    """`job/x`, and `job x` as kubectl has it."""
    if len(what) == 1 and what[0].lower() in ("job", "jobs"):
        return ["jobs"]
    if len(what) > 1 and "/" not in what[0]:
        return [f"{what[0]}/{name}" for name in what[1:]]
    return list(what)


def _named_in(file: Path, namespace: str) -> list[tuple[str, str]]:
    """The objects of a manifest that explain knows."""
    try:
        documents = list(yaml.safe_load_all(file.read_text()))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"{file}: {' '.join(str(error).split())}") from error
    requests = [
        (f"{obj['kind']}/{obj['metadata']['name']}", obj["metadata"].get("namespace") or namespace)
        for document in documents
        for obj in _objects(document)
        if str(obj.get("kind")).lower() in gather.KINDS
        and isinstance(obj.get("metadata"), dict)
        and obj["metadata"].get("name")
    ]
    if not requests:
        raise UsageError(f"{file}: names no Job, Pod, Node or CronJob")
    return requests


def _objects(document: Any) -> list[dict[str, Any]]:
    if not isinstance(document, dict):
        return []
    if str(document.get("kind", "")).endswith("List"):
        return [each for each in document.get("items") or () if isinstance(each, dict)]
    return [document]


async def _explain(access: Access, requests: Sequence[tuple[str, str]], form: output.Form) -> None:
    """Of several objects, one that does not exist hides no other; like kubectl, it ends with 1."""
    explanations, missing = [], []
    async with explain_client.connect(access, "explain") as client:
        explainer = Explainer(client, RealClock(), client.server_now)
        for what, namespace in requests:
            try:
                explanations.append(await explainer.explain(what, namespace))
            except errors.NotFound as error:
                missing.append(error)
    if explanations:
        _show(explanations, form)
    for each in missing[:-1]:
        click.echo(f"refloat: {each}", err=True)
    if missing:
        raise missing[-1]


async def _watch(access: Access, requests: Sequence[tuple[str, str]], form: output.Form) -> None:
    """Until Ctrl-C, or until one of the objects no longer exists."""
    clock = RealClock()
    last: dict[str, tuple[str, str]] = {}
    async with explain_client.connect(access, "explain") as client:
        while True:
            explainer = Explainer(client, clock, client.server_now)
            for what, namespace in requests:
                explanation = await explainer.explain(what, namespace)
                state = (str(explanation.finding.code), explanation.finding.verdict)
                if last.get(what) != state:
                    last[what] = state
                    _show([explanation], form)
            await clock.sleep(WATCH_SECONDS)


def _show(explanations: Sequence[Explanation], form: output.Form) -> None:
    if form != "table":
        objects = [each.as_object() for each in explanations]
        output.show(objects[0] if len(objects) == 1 else {"items": objects}, form)
        return
    columns = explain_output.width()
    for number, each in enumerate(explanations):
        if number:
            click.echo()
        for line in explain_output.render(each, columns):
            click.echo(line)
    click.echo()


async def _list_jobs(access: Access, namespace: str, form: output.Form) -> None:
    """One line for each Job, the newest last."""
    explanations = []
    async with explain_client.connect(access, "explain") as client:
        explainer = Explainer(client, RealClock(), client.server_now)
        async for job in explainer.jobs(namespace):
            try:
                explanations.append(await explainer.of_job(job))
            except RefloatError as error:
                raise type(error)(f"job {job.metadata.name}: {error}") from error
    if form != "table":
        output.show({"items": [each.as_object() for each in explanations]}, form)
        return
    if not explanations:
        click.echo("no Jobs")
    for each in explanations:
        click.echo(f"{each.subject}: {each.finding.code}")
        for line in explain_output.wrapped(each.finding.verdict, explain_output.width(), "  "):
            click.echo(line)
