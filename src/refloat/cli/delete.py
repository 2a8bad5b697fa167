# SPDX-License-Identifier: Apache-2.0
"""`refloat delete`"""

from pathlib import Path

import click

from refloat.api import names
from refloat.api.core import Pod
from refloat.app import deleting
from refloat.base.clock import RealClock
from refloat.base.errors import UsageError
from refloat.base.rand import Rand
from refloat.cli import options
from refloat.client import kubeconfig as configured
from refloat.client.http import HttpClient
from refloat.client.settings import Settings


@click.group()
def command() -> None:
    """Delete a pod, and say why.

    A Job's backoffPolicy can tell by the reason what the end of the pod means
    (docs/backoff-policy.md).
    """


@command.command("pod")
@click.argument("name")
@click.option("--reason", required=True, help="One word, for example Maintenance.")
@click.option("-n", "--namespace", default="", help="[default: that of the context]")
@click.option(
    "--grace-period", type=click.IntRange(min=0), help="Seconds. [default: the pod's own]"
)
@options.kubeconfig
@options.context
def pod(  # one parameter for each option
    *,
    name: str,
    reason: str,
    namespace: str,
    grace_period: int | None,
    kubeconfig: Path | None,
    context: str,
) -> None:
    """Delete a pod for a reason.

    The pod has it in its status.reason, or in the annotation
    refloat.dev/deletion-reason where the cluster is Kubernetes.
    """
    _check_name(name, "a pod")
    if namespace:
        _check_name(namespace, "a namespace")
    deleting.check_reason(reason)
    options.run(_delete(name, reason, namespace, grace_period, kubeconfig, context))


def _check_name(name: str, of: str) -> None:
    wrong = names.path_segment(name) if name else ("may not be empty",)
    if wrong:
        raise UsageError(f"{name!r}: expected the name of {of}, which {' and '.join(wrong)}")


async def _delete(
    name: str, reason: str, namespace: str, grace: int | None, file: Path | None, context: str
) -> None:
    access = configured.find(file, context=context)
    settings = Settings(component="delete", field_manager="refloat-delete")
    client = HttpClient(access, clock=RealClock(), rand=Rand(), settings=settings)
    try:
        found = await deleting.delete_pod(
            client,
            name,
            namespace=namespace or access.namespace,
            reason=reason,
            grace_seconds=grace,
        )
    finally:
        await client.close()
    click.echo(told(found, reason))


def told(pod: Pod, reason: str) -> str:
    """What became of a pod that was like this when it was deleted for this reason."""
    name, keeps = pod.metadata.name, deleting.kept(pod, reason)
    if pod.is_terminal:
        return f"pod {name} deleted; it had ended as {pod.status.phase} before"
    if keeps != reason:
        return f"pod {name} was deleted before, and keeps that reason: {keeps}"
    return f"pod {name} deleted: {reason}"
