# SPDX-License-Identifier: Apache-2.0
"""`refloat explain`"""

import textwrap
from pathlib import Path

import click

from refloat.base import log
from refloat.base.clock import RealClock
from refloat.base.rand import Rand
from refloat.cli import options, output
from refloat.client import kubeconfig as files
from refloat.client.access import Access
from refloat.client.http import HttpClient
from refloat.client.settings import Settings
from refloat.explain.account import Account
from refloat.explain.gather import Asker

WIDTH = 80


@click.command()
@click.argument("what", metavar="pod/NAME|node/NAME")
@options.kubeconfig
@options.context
@click.option("-n", "--namespace", default="", help="Of the pod. [default: the context's]")
@output.option
def command(
    *, what: str, kubeconfig: Path | None, context: str, namespace: str, form: output.Form
) -> None:
    """Say why a pod or a node is where it is, and what happens next.

    For a pod that hangs in Terminating: whether Refloat will end it by force,
    when and by whose word, or why not. It reads objects and events of the
    cluster, and writes nothing.
    """
    log.setup(level="warning")
    options.run(_show(what, files.find(kubeconfig, context=context), namespace, form))


async def _show(what: str, found: Access, namespace: str, form: output.Form) -> None:
    clock = RealClock()
    settings = Settings(component="explain", attempts=1)
    client = HttpClient(found, clock=clock, rand=Rand(), settings=settings)
    try:
        asker = Asker(client, clock, client.server_now)
        account = await asker.explain(what, namespace or found.namespace)
    finally:
        await client.close()
    if form != "table":
        output.show(account.as_object(), form)
        return
    for line in render(account):
        click.echo(line)


def render(account: Account) -> list[str]:
    """At most `WIDTH` columns, where no single word is longer."""
    widest = max((len(point.about) for point in account.points), default=0)
    lines = [account.subject]
    for point in account.points:
        lines += textwrap.wrap(
            point.text,
            WIDTH,
            initial_indent=f"  {point.about:<{widest}}  ",
            subsequent_indent=" " * (widest + 4),
            break_long_words=False,
            break_on_hyphens=False,
        )
    return lines
