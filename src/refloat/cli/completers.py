# SPDX-License-Identifier: Apache-2.0
"""The words that a shell offers: names of objects, nodes, demos and gates.

A completion runs while the user types. So it takes at most `TIMEOUT_SECONDS`, reads at most
one page of a kind, and on any error offers nothing.
"""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click
from click.shell_completion import CompletionItem

from refloat.base import gates as known_gates

if TYPE_CHECKING:
    from refloat.client.contract import Kind

# Longer than a list on a busy cluster takes, and short for a person who waits.
TIMEOUT_SECONDS = 2.0

# Names of one kind: more than a person reads in a menu.
MAX_NAMES = 500

# The kinds that `refloat explain` takes, with the words for each.
KIND_WORDS = {
    "job": ("job", "jobs", "jobs.batch", "job.batch"),
    "pod": ("pod", "pods", "po"),
    "node": ("node", "nodes", "no"),
    "cronjob": ("cronjob", "cronjobs", "cj", "cronjob.batch"),
}

Completer: TypeAlias = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def names(entries: Callable[[], Iterable[tuple[str, str]]]) -> Completer:
    """Completes names that are known without a cluster, each with a line of help."""

    def complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [
            CompletionItem(name, help=text)
            for name, text in entries()
            if name.startswith(incomplete)
        ]

    return complete


def gates(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """`A=true,B` becomes `A=true,Beta=true` and `A=true,Beta=false`."""
    before, comma, last = incomplete.rpartition(",")
    return [
        CompletionItem(f"{before}{comma}{gate.name}={value}")
        for gate in known_gates.KNOWN
        for value in ("true", "false")
        if f"{gate.name}={value}".startswith(last)
    ]


def objects(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """`job/NAME` and so on, and names after a kind as in `job NAME`."""
    return _objects(ctx, incomplete, list(KIND_WORDS))


def pods(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """`pod/NAME`, and names after `pod`."""
    return _objects(ctx, incomplete, ["pod"])


def embedded_nodes(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The nodes of the embedded cluster that `refloat node` finds."""
    from refloat.cli import options  # noqa: PLC0415 - imports this module

    file = options.find_data_dir(ctx.params.get("data_dir")) / "kubeconfig"
    return _items(_ask(["node"], file, "", ""), incomplete, with_kind=False)


def _objects(ctx: click.Context, incomplete: str, kinds: Sequence[str]) -> list[CompletionItem]:
    first, *_ = ctx.params.get("what") or ("",)
    word, slash, _ = incomplete.partition("/")
    chosen = [kind for kind in kinds if first.lower() in KIND_WORDS[kind]]
    with_kind = not chosen
    if with_kind and slash:
        chosen = [kind for kind in kinds if word.lower() in KIND_WORDS[kind]]
        incomplete = f"{chosen[0]}{incomplete[len(word) :]}" if chosen else incomplete
    elif with_kind:
        chosen = [kind for kind in kinds if kind.startswith(word)]
    params = ctx.params
    namespace = params.get("namespace") or ""
    answers = _ask(chosen, params.get("kubeconfig"), params.get("context") or "", namespace)
    return _items(answers, incomplete, with_kind=with_kind)


def _items(
    answers: Sequence[tuple[str, str]], incomplete: str, *, with_kind: bool
) -> list[CompletionItem]:
    words = [f"{kind}/{name}" if with_kind else name for kind, name in answers]
    return [CompletionItem(word) for word in words if word.startswith(incomplete)]


def _ask(
    kinds: Sequence[str], file: Path | None, context: str, namespace: str
) -> list[tuple[str, str]]:
    """Kinds and names of the cluster's objects; what was read in time, without any error."""
    found: list[tuple[str, str]] = []
    # Whatever goes wrong, a message here would stand in the user's command line.
    with contextlib.suppress(Exception):
        from refloat.cli import options  # noqa: PLC0415 - imports this module

        options.run(_read(kinds, file, context, namespace, found))
    return found


async def _read(
    kinds: Sequence[str],
    file: Path | None,
    context: str,
    namespace: str,
    found: list[tuple[str, str]],
) -> None:
    # Loaded only when a user asks for names of a cluster: the client takes long to import.
    from refloat.base.clock import RealClock  # noqa: PLC0415
    from refloat.base.rand import Rand  # noqa: PLC0415
    from refloat.client import kinds as known  # noqa: PLC0415
    from refloat.client import kubeconfig  # noqa: PLC0415
    from refloat.client.http import HttpClient  # noqa: PLC0415
    from refloat.client.settings import ClientSettings  # noqa: PLC0415
    from refloat.explain import objects  # noqa: PLC0415

    clock = RealClock()
    access = kubeconfig.find(file, context=context)
    settings = ClientSettings(
        component="completion",
        attempts=1,
        request_seconds=TIMEOUT_SECONDS,
        plugin_seconds=TIMEOUT_SECONDS,
        sign_in_seconds=TIMEOUT_SECONDS,
    )
    client = HttpClient(access, clock=clock, rand=Rand(), settings=settings)
    kind_of: dict[str, Kind[Any]] = {
        "job": known.JOBS,
        "pod": objects.PODS,
        "node": known.NODES,
        "cronjob": objects.CRON_JOBS,
    }
    try:
        async with clock.timeout(TIMEOUT_SECONDS):
            for kind in kinds:
                place = "" if kind == "node" else namespace or access.namespace
                async for page in client.list(kind_of[kind], namespace=place, limit=MAX_NAMES):
                    found += [(kind, each.metadata.name) for each in page.items]
                    break
    finally:
        await client.close()
