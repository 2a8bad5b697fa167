# SPDX-License-Identifier: Apache-2.0
"""Checks the form of a start request, without a library. An error names the field."""

from typing import Any

# The version of the requests. Raise the number with each change of `start` that an older
# keeper would ignore, because a keeper outlives the upgrade of its agent. Keepers before 2
# do not report a number.
PROTOCOL = 2

Spec = dict[str, Any]

# No grace, timeout or deadline is longer: about 317 years.
LONGEST_SECONDS = 1e10

_MAX_ATTEMPT = 1 << 31

_REQUIRED: dict[str, type] = {
    "pod": str,
    "container": str,
    "id": str,
    "attempt": int,
    "argv": list,
    "env": dict,
    "mounts": list,
    "hidden": list,
    "scratch": str,
    "log": str,
    "log_bytes": int,
    "log_files": int,
    "pids": int,
}


def check(spec: Any) -> Spec:
    """The spec of a container; raises `ValueError`."""
    if not isinstance(spec, dict):
        raise ValueError("spec: not an object")
    for name, kind in _REQUIRED.items():
        if not isinstance(spec.get(name), kind) or isinstance(spec[name], bool):
            raise ValueError(f"spec.{name}: not a {kind.__name__}")
    if not 0 <= spec["attempt"] < _MAX_ATTEMPT:
        raise ValueError(f"spec.attempt: {spec['attempt']} is no number of an attempt")
    # The id becomes the name of a cgroup.
    if not spec["id"].isalnum():
        raise ValueError(f"spec.id: {spec['id']!r} is no id")
    texts("spec.argv", spec["argv"])
    texts("spec.hidden", spec["hidden"])
    texts("spec.env", [*spec["env"].values()])
    for each in spec["mounts"]:
        if not isinstance(each, dict):
            raise ValueError("spec.mounts: not objects")
        texts("spec.mounts", [each.get("source"), each.get("target")])
    for name in ("hook", "post_start"):
        if spec.get(name) is not None:
            texts(f"spec.{name}", spec[name])
    number("spec.grace", spec.get("grace", 0))
    return spec


def texts(name: str, values: Any) -> list[str]:
    """A list of texts that the kernel accepts; raises `ValueError`."""
    if not isinstance(values, list):
        raise ValueError(f"{name}: not a list")
    for each in values:
        if not isinstance(each, str) or "\0" in each:
            raise ValueError(f"{name}: {each!r} is not a text without zeros")
    return values


def number(name: str, value: Any) -> float:
    """A time or a duration in seconds; raises `ValueError`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name}: {value!r} is not a number")
    if not 0 <= value <= LONGEST_SECONDS:
        raise ValueError(f"{name}: {value!r} is not a time")
    return float(value)
