# SPDX-License-Identifier: Apache-2.0
"""Containers that write what they do, and what their files say afterwards.

Each container has one file, named for its pod's uid. Times are those of /proc/uptime,
which all processes of a machine share, and which no clock change moves.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Object = dict[str, Any]

# Runs until the file go-JOB appears, or for LIFE beats. The first attempt of an index
# that FAIL names ends with 1, each other one with 0. Kubernetes makes one $ of two.
SCRIPT = r"""
say() { read -r up _ < /proc/uptime; echo "$1 $up $2" >> "/v/$POD_UID"; }
trap 'say term; exit 143' TERM
index=${JOB_COMPLETION_INDEX:-0}
say start "$JOB $index $$$$"
beats=0
until [ -e "/v/go-$JOB" ] || [ "$beats" -ge "$LIFE" ]; do
  say beat
  beats=$((beats + 1))
  sleep 0.2
done
code=0
case " $FAIL " in
  *" $index "*) mkdir "/v/failed-$JOB-$index" 2>/dev/null && code=1 ;;
esac
say end "$code"
exit "$code"
"""

FOREVER = 10**6


@dataclass
class Run:
    """What the file of one container says."""

    uid: str
    job: str = ""
    index: int = 0
    pid: int = 0
    starts: list[float] = field(default_factory=list)
    last: float = 0.0
    """When it wrote for the last time."""
    code: int | None = None
    """Its exit code; None: it did not end by itself."""
    terminated: bool = False
    """Whether it was asked to end."""

    def is_alive(self) -> bool:
        """Whether its process runs; a pid that another process has got by now does not count."""
        try:
            return self.uid.encode() in Path(f"/proc/{self.pid}/environ").read_bytes()
        except OSError:
            return False


def read(folder: Path) -> dict[str, Run]:
    """All containers that ever started, by the uid of their pod."""
    runs = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and not path.name.startswith("go-"):
            runs[path.name] = _read(path)
    return {uid: run for uid, run in runs.items() if run.starts}


def _read(path: Path) -> Run:
    run = Run(path.name)
    for line in path.read_text().splitlines():
        what, when, *more = line.split()
        run.last = max(run.last, float(when))
        if what == "start":
            run.starts.append(float(when))
            run.job, run.index, run.pid = more[0], int(more[1]), int(more[2])
        elif what == "end":
            run.code = int(more[0])
        elif what == "term":
            run.terminated = True
    return run


def folder(path: Path) -> Path:
    """A folder that containers of any user can write to."""
    path.mkdir()
    os.chmod(path, 0o777)  # noqa: PTH101 - whatever the umask is
    return path


def job(
    name: str,
    shown: Path,
    *,
    life: int = FOREVER,
    fail: str = "",
    managed_by: str = "",
    pod: Object | None = None,
    **spec: Any,
) -> Object:
    """An Indexed Job that replaces a pod only when it has ended."""
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sh", "-c", SCRIPT],
        "env": [
            {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
            {"name": "JOB", "value": name},
            {"name": "LIFE", "value": str(life)},
            {"name": "FAIL", "value": fail},
        ],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    }
    template = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 5,
        "containers": [container],
        "volumes": [{"name": "v", "hostPath": {"path": str(shown)}}],
        **(pod or {}),
    }
    settled = {
        "completionMode": "Indexed",
        "completions": 2,
        "parallelism": 2,
        "backoffLimit": 20,
        "podReplacementPolicy": "Failed",
        "template": {"spec": template},
        **spec,
    }
    if managed_by:
        settled["managedBy"] = managed_by
    return {"metadata": {"name": name}, "spec": settled}
