# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.kubernetes`: builds a Kubernetes, starts, tests and stops the cluster.

Also `make test-kubernetes`. With REFLOAT_KUBERNETES=1.33.13 another version is
built; KUBEBUILDER_ASSETS names programs that are there already, and
REFLOAT_TEST_KUBECONFIG a cluster for tests, to which nodes are added.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn, get_args

import click

from refloat.base.errors import RefloatError, UsageError
from tests.e2e import kubectl
from tests.kubernetes import cluster, programs, suites
from tests.kubernetes.cluster import ClusterRun, Clusters
from tests.kubernetes.suites import Ended, Suite

GIVEN = "REFLOAT_TEST_KUBECONFIG"

INTERRUPTED = 130

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_STAGES = {
    "api": cluster.api_servers,
    "cluster": cluster.clusters,
    "real nodes": cluster.real_nodes,
}


def main() -> int:
    options = _arguments()
    for each in _SIGNALS:
        signal.signal(each, _interrupt)
    folder = Path(tempfile.mkdtemp(prefix="refloat-kubernetes-"))
    code = 1
    try:
        code = _run(options, folder)
    except KeyboardInterrupt:
        code = INTERRUPTED
        _say("stopped")
    except (RefloatError, OSError) as error:
        code = 2 if isinstance(error, UsageError) else 1
        click.echo(f"test-kubernetes: {error}", err=True)
    finally:
        _end_children()
        if code in (0, INTERRUPTED) or not any(folder.iterdir()):
            shutil.rmtree(folder, ignore_errors=True)
        else:
            _say(f"logs are in {folder}")
    return code


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.kubernetes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"  {each.name:20} {each.about}" for each in suites.SUITES),
    )
    names = [each.name for each in suites.SUITES]
    parser.add_argument(
        "--only", action="append", default=[], choices=names, help="may be given several times"
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="leave the last cluster running until Ctrl-C, and say where it is",
    )
    parser.add_argument("--no-suites", action="store_true", help="with --keep: only the cluster")
    parser.add_argument("--port", type=int, default=0, help="of the API server, if not a free one")
    return parser.parse_args()


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    """Stop everything once; a second signal does not interrupt the stop."""
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def _end_children() -> None:
    """Whatever was just being started when a signal came."""
    me = os.getpid()
    for pid in Path(f"/proc/{me}/task/{me}/children").read_text().split():
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(int(pid), signal.SIGKILL)
            os.waitpid(int(pid), 0)


def _say(text: str) -> None:
    _pass("")
    click.echo(text)


def _pass(text: str) -> None:
    if sys.stdout.isatty():
        click.echo(f"\r\x1b[K{text}", nl=False)


def _run(options: argparse.Namespace, folder: Path) -> int:
    run = _prepare(options, folder)
    selection = [] if options.no_suites else _possible(suites.chosen(options.only), run)
    started = time.monotonic()
    results: list[Ended] = []
    for stage in get_args(suites.Stage):
        here = [each for each in selection if each.stage == stage]
        keep = options.keep and stage == "cluster"
        if here or keep:
            results += _stage(run, stage, here, keep=keep)
    _say("\n".join(["", *suites.table(results), f"in all {time.monotonic() - started:.0f} s"]))
    return int(any(each.code for each in results))


def _prepare(options: argparse.Namespace, folder: Path) -> ClusterRun:
    """Have all programs that are needed; a cluster that is there already needs no others."""
    kubeconfig = os.environ.get(GIVEN)
    if kubeconfig:
        _say(f"the cluster of {kubeconfig}")
        return ClusterRun(folder, {"kubectl": kubectl.path()}, _say, given=Path(kubeconfig))
    version, paths = programs.ensure(programs.BuildOutput(_say, _pass))
    _say(f"Kubernetes {version}")
    return ClusterRun(folder, paths, _say, options.port)


def _possible(selection: list[Suite], run: ClusterRun) -> list[Suite]:
    if run.given is None:
        return selection
    ours = [each.name for each in selection if not each.anywhere]
    if ours:
        _say(f"not on a cluster that others run: {', '.join(ours)}")
    return [each for each in selection if each.anywhere]


def _stage(
    run: ClusterRun, stage: suites.Stage, selection: Iterable[Suite], *, keep: bool
) -> list[Ended]:
    opened: AbstractContextManager[Clusters] = _STAGES[stage](run)
    with opened as cluster:
        results = []
        for each in selection:
            _say(f"\n{each.name}: {each.about}")
            results.append(suites.run(each, cluster))
        if keep:
            _say(f"Kubernetes: export KUBECONFIG={cluster.kubernetes}")
            _say(f"Refloat:    export KUBECONFIG={cluster.embedded}")
            _say("Ctrl-C stops them.")
            signal.pause()
    return results


if __name__ == "__main__":
    sys.exit(main())
