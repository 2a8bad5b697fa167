# SPDX-License-Identifier: Apache-2.0
"""`refloat delete`"""

from collections.abc import Sequence
from pathlib import Path

import click

from refloat.api import names
from refloat.api.core import Pod
from refloat.app import delete_pod
from refloat.base.clock import RealClock
from refloat.base.errors import RefloatError, UsageError
from refloat.base.rand import Rand
from refloat.cli import completers, options
from refloat.client import kubeconfig as configured
from refloat.client.http import HttpClient
from refloat.client.settings import ClientSettings

POD_WORDS = ("po", "pod", "pods")


@click.command()
@click.argument("what", nargs=-1, metavar="pod/NAME...", shell_complete=completers.pods)
@click.option("--reason", required=True, help="The reason: one word, for example Maintenance.")
@click.option("-n", "--namespace", default="", help="The pod's namespace. [default: the context's]")
@click.option(
    "--grace-period",
    type=click.IntRange(min=0),
    help="Seconds that the pod has to end. [default: the pod's own]",
)
@options.kubeconfig
@options.context
def command(  # one parameter for each option
    *,
    what: tuple[str, ...],
    reason: str,
    namespace: str,
    grace_period: int | None,
    kubeconfig: Path | None,
    context: str,
) -> None:
    """Delete pods with a reason for their Job's failure policy.

    A backoffPolicy can match the reason, and so decide whether the end of the
    pod counts as a failure of the Job (docs/backoff-policy.md). `refloat up`
    keeps the reason in the pod's status.reason. On Kubernetes the command
    writes the annotation refloat.dev/deletion-reason. Examples:

    \b
      refloat delete pod/train-0 -n ml --reason Maintenance
      refloat delete pod train-0 train-1 --reason Maintenance
    """
    names_ = pod_names(what)
    for name in names_:
        _check_name(name, "a pod")
    if namespace:
        _check_name(namespace, "a namespace")
    delete_pod.check_reason(reason)
    options.run(_delete(names_, reason, namespace, grace_period, kubeconfig, context))


def pod_names(what: Sequence[str]) -> list[str]:
    """`pod/x pod/y`, and `pod x y`, as kubectl has it."""
    if what and what[0].lower() in POD_WORDS:
        if len(what) == 1:
            raise UsageError("expected the name of a pod, for example pod/train-0")
        return list(what[1:])
    if not what:
        raise UsageError("expected pod/NAME, or pod NAME")
    pairs = [each.partition("/") for each in what]
    for text, (kind, slash, _) in zip(what, pairs, strict=True):
        if not slash or kind.lower() not in POD_WORDS:
            raise UsageError(f"{text!r}: expected pod/NAME, or pod NAME")
    return [name for _, _, name in pairs]


def _check_name(name: str, kind: str) -> None:
    mistakes = names.path_segment(name) if name else ("may not be empty",)
    if mistakes:
        raise UsageError(f"{name!r}: expected the name of {kind}, which {' and '.join(mistakes)}")


async def _delete(
    pods: Sequence[str],
    reason: str,
    namespace: str,
    grace: int | None,
    file: Path | None,
    context: str,
) -> None:
    """Delete the pods one by one; a pod that cannot be deleted does not keep the others."""
    access = configured.find(file, context=context)
    settings = ClientSettings(component="delete", field_manager="refloat-delete")
    client = HttpClient(access, clock=RealClock(), rand=Rand(), settings=settings)
    problems: dict[str, None] = {}  # without repetition, and in their order
    try:
        for name in pods:
            try:
                pod = await delete_pod.delete_pod(
                    client,
                    name,
                    namespace=namespace or access.namespace,
                    reason=reason,
                    grace_seconds=grace,
                )
            except RefloatError as error:
                if len(pods) == 1:
                    raise
                problems[str(error)] = None
            else:
                click.echo(outcome(pod, reason))
    finally:
        await client.close()
    if problems:
        raise RefloatError("; ".join(problems))


def outcome(pod: Pod, reason: str) -> str:
    """The message for a deleted pod; `pod` is from before the delete."""
    name, kept_reason = pod.metadata.name, delete_pod.kept(pod, reason)
    if pod.is_terminal:
        return f"pod {name} deleted; it had ended as {pod.status.phase} before"
    if kept_reason != reason:
        return f"pod {name} was deleted before, and keeps that reason: {kept_reason}"
    return f"pod {name} deleted: {reason}"
