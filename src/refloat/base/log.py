# SPDX-License-Identifier: Apache-2.0
"""Logs on stderr, as text for people or as JSON lines for machines.

Structured fields go into a record through `extra={"fields": {...}}`.
"""

import json
import logging
import sys
from typing import Literal

Format = Literal["text", "json"]


def setup(log_format: Format = "text", level: str = "info") -> None:
    """Send all logs of this process to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)


# Logs have texts of users, for example the name of a missing owner. With a line break
# in the text, a user could write log lines.
_ESCAPES = {
    code: ascii(chr(code))[1:-1]
    for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
    if chr(code) != "\t"
}


class TextFormatter(logging.Formatter):
    """`12:00:01 INFO apiserver: request done  verb=get code=200`; one line, plus tracebacks."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's
        return super().formatMessage(record).translate(_ESCAPES)

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        fields = getattr(record, "fields", None)
        if not fields:
            return line
        text = " ".join(f"{key}={value}" for key, value in fields.items())
        return f"{line}  {text.translate(_ESCAPES)}"


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    default_time_format = "%Y-%m-%dT%H:%M:%S"

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)
