# SPDX-License-Identifier: Apache-2.0
"""Reads the file of `--images`, which describes the images of a node.

commands: {"*/hasher:*": [sha256sum]}   # the command of containers without one
missing: ["no-such-*"]                  # images that cannot be pulled
pullSeconds: {"big:*": 60}              # the duration of a pull
"""

from pathlib import Path

import msgspec
import yaml

from refloat.agent.process.images import ImageSettings
from refloat.base.errors import UsageError


class _ImageFile(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    commands: dict[str, list[str]] = {}
    missing: tuple[str, ...] = ()
    pull_seconds: dict[str, float] = {}


def read(path: Path) -> ImageSettings:
    """Raises `UsageError` with the file, the field and the expected value."""
    try:
        file = msgspec.convert(yaml.safe_load(path.read_text()) or {}, _ImageFile)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise UsageError(f"{path}: {error}") from error
    for pattern, command in file.commands.items():
        if not command:
            raise UsageError(f"{path}: commands[{pattern!r}]: [] is no command")
    for pattern, seconds in file.pull_seconds.items():
        if not 0 <= seconds < float("inf"):
            raise UsageError(f"{path}: pullSeconds[{pattern!r}]: {seconds} is no duration")
    return ImageSettings(file.commands, file.missing, file.pull_seconds)
