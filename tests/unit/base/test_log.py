# SPDX-License-Identifier: Apache-2.0
"""Log lines for people and for machines."""

import json
import logging
import sys

import pytest

from refloat.base import log


def record(message: str = "request done", **more: object) -> logging.LogRecord:
    made = logging.LogRecord("apiserver", logging.INFO, __file__, 1, message, None, None)
    made.__dict__.update(more)
    return made


def test_text_line_carries_the_fields() -> None:
    line = log.TextFormatter().format(record(fields={"verb": "get", "code": 200}))
    assert line.endswith(" INFO apiserver: request done  verb=get code=200")


def test_text_line_without_fields_is_plain() -> None:
    assert log.TextFormatter().format(record()).endswith("request done")


@pytest.mark.parametrize(
    "text", ["a\nERROR x", "a\r\nb", "a\x1b[2Jb", "a\x00b", "a\u2028b", "a\x85b"]
)
def test_what_users_write_is_no_line_of_the_text_log(text: str) -> None:
    for each in (record(text), record(fields={"pod": text})):
        line = log.TextFormatter().format(each)
        assert len(line.splitlines()) == 1
        assert line.isprintable()


def test_a_traceback_keeps_its_lines() -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        line = log.TextFormatter().format(record(exc_info=sys.exc_info()))
    assert line.splitlines()[-1] == "ValueError: broken"


def test_json_line_is_one_object() -> None:
    line = log.JsonFormatter().format(record("two\nlines", fields={"code": 200}))
    assert "\n" not in line
    entry = json.loads(line)
    assert (entry["level"], entry["message"], entry["code"]) == ("info", "two\nlines", 200)


def test_json_line_carries_an_error() -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        made = record(exc_info=sys.exc_info())
    assert "ValueError: broken" in json.loads(log.JsonFormatter().format(made))["error"]


def test_setup_sends_everything_to_stderr(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    level = root.level
    try:
        log.setup("json", level="warning")
        logging.getLogger("x").info("not this")
        logging.getLogger("x").warning("but this")
    finally:
        root.setLevel(level)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert json.loads(captured.err)["message"] == "but this"
