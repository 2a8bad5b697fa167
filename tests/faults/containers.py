# SPDX-License-Identifier: Apache-2.0
"""Containers that log their work to files, and the reports from these files.

Each container has one file, named for the pod's uid. Times are those of /proc/uptime,
which all processes of a machine share, and which no clock change moves.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Object = dict[str, Any]

# Runs until the file go-JOB appears, or for LIFE beats. The first attempt of an index
# that FAIL names ends with 1, each other one with 0. With CHILD a second process writes
# beside the first, deaf to SIGTERM and in a session of its own, until SIGKILL.
# Kubernetes makes one $ of two.
SCRIPT = r"""
say() { read -r up _ < /proc/uptime; echo "$1 $up $2" >> "/v/$POD_UID"; }
trap 'say term; exit 143' TERM
index=${JOB_COMPLETION_INDEX:-0}
say start "$JOB $index $$$$"
[ -z "$CHILD" ] || setsid sh -c "$CHILD" &
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

# The process beside the first one; dash has no variable for the pid of a subshell.
CHILD = r"""
say() { read -r up _ < /proc/uptime; echo "$1 $up $2" >> "/v/$POD_UID"; }
trap '' TERM
say child "$$$$"
while say beat; do sleep 0.2; done
"""

FOREVER = 10**6


@dataclass
class ContainerRun:
    """The report from the file of one container."""

    uid: str
    job: str = ""
    index: int = 0
    pids: list[int] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    last: float = 0.0
    """When the container wrote last."""
    code: int | None = None
    """The exit code; None: ended without one."""
    terminated: bool = False
    """Whether the container got SIGTERM."""

    def is_alive(self) -> bool:
        """Whether a process of the container runs."""
        return any(self._has(pid) for pid in self.pids)

    def _has(self, pid: int) -> bool:
        """Whether a process is the container's; a later process with the same pid is not."""
        try:
            return self.uid.encode() in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False


def read(folder: Path) -> dict[str, ContainerRun]:
    """All containers that ever started, by the uid of their pod."""
    runs = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and not path.name.startswith("go-"):
            runs[path.name] = _read(path)
    return {uid: run for uid, run in runs.items() if run.starts}


def _read(path: Path) -> ContainerRun:
    run = ContainerRun(path.name)
    for line in path.read_text().splitlines():
        what, when, *more = line.split()
        run.last = max(run.last, float(when))
        if what == "start":
            run.starts.append(float(when))
            run.job, run.index = more[0], int(more[1])
            run.pids.append(int(more[2]))
        elif what == "child":
            run.pids.append(int(more[0]))
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
    host_folder: Path,
    *,
    life: int = FOREVER,
    fail: str = "",
    child: bool = False,
    managed_by: str = "",
    pod: Object | None = None,
    metadata: Object | None = None,
    **spec: Any,
) -> Object:
    """An Indexed Job that replaces a pod only after the end."""
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sh", "-c", SCRIPT],
        "env": [
            {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
            {"name": "JOB", "value": name},
            {"name": "LIFE", "value": str(life)},
            {"name": "FAIL", "value": fail},
            {"name": "CHILD", "value": CHILD if child else ""},
        ],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    }
    template = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 5,
        "containers": [container],
        "volumes": [{"name": "v", "hostPath": {"path": str(host_folder)}}],
        **(pod or {}),
    }
    job_spec = {
        "completionMode": "Indexed",
        "completions": 2,
        "parallelism": 2,
        "backoffLimit": 20,
        "podReplacementPolicy": "Failed",
        "template": {"metadata": metadata or {}, "spec": template},
        **spec,
    }
    if managed_by:
        job_spec["managedBy"] = managed_by
    return {"metadata": {"name": name}, "spec": job_spec}
