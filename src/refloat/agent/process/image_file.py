# SPDX-License-Identifier: Apache-2.0
"""The file that says what a node's images are.

commands: {"*/hasher:*": [sha256sum]}   # of containers that name none
missing: ["no-such-*"]                  # images that cannot be pulled
pullSeconds: {"big:*": 60}              # how long a pull takes
"""

from pathlib import Path

import msgspec
import yaml

from refloat.agent.process.images import ImageSettings
from refloat.base.errors import UsageError


class _File(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    commands: dict[str, list[str]] = {}
    missing: tuple[str, ...] = ()
    pull_seconds: dict[str, float] = {}


def read(path: Path) -> ImageSettings:
    """Raises `UsageError`, which names the file, the field and what was expected."""
    try:
        told = msgspec.convert(yaml.safe_load(path.read_text()) or {}, _File)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise UsageError(f"{path}: {error}") from error
    for pattern, command in told.commands.items():
        if not command:
            raise UsageError(f"{path}: commands[{pattern!r}]: [] is no command")
    for pattern, seconds in told.pull_seconds.items():
        if not 0 <= seconds < float("inf"):
            raise UsageError(f"{path}: pullSeconds[{pattern!r}]: {seconds} is no duration")
    return ImageSettings(told.commands, told.missing, told.pull_seconds)
