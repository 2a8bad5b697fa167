# SPDX-License-Identifier: Apache-2.0
"""Answers of HTTP/1.1, in whichever pieces they come, and what is none."""

from dataclasses import dataclass

import pytest

from refloat.client import response_parser
from refloat.client.response_parser import Answer, BadAnswer, Reader

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


@dataclass(frozen=True)
class Case:
    sent: bytes
    want_body: bytes = b""
    want_status: int = 200
    want_persists: bool = True
    ends: bool = False
    """Whether only the end of the connection completes it."""


CASES = {
    "a body of a length": Case(HEAD + b"Content-Length: 5\r\n\r\nhello", b"hello"),
    "an empty body": Case(HEAD + b"Content-Length: 0\r\n\r\n"),
    "no body where there is none": Case(b"HTTP/1.1 204 No Content\r\n\r\n", want_status=204),
    "a failure": Case(b"HTTP/1.1 409 \r\nContent-Length: 1\r\n\r\nx", b"x", want_status=409),
    "chunks": Case(CHUNKED + b"3\r\nhel\r\n2;a=b\r\nlo\r\n0\r\n\r\n", b"hello"),
    "chunks and trailers": Case(CHUNKED + b"A\r\n0123456789\r\n0\r\nX: y\r\n\r\n", b"0123456789"),
    "no chunks at all": Case(CHUNKED + b"0\r\n\r\n"),
    "a notice before": Case(
        b"HTTP/1.1 103 Early\r\nX: y\r\n\r\n" + HEAD + b"Content-Length: 2\r\n\r\nhi", b"hi"
    ),
    "the last one of its connection": Case(
        HEAD + b"Connection: close\r\nContent-Length: 2\r\n\r\nhi", b"hi", want_persists=False
    ),
    "an older server's": Case(
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", b"hi", want_persists=False
    ),
    "until the connection ends": Case(
        HEAD + b"\r\nhello", b"hello", want_persists=False, ends=True
    ),
    "more than was asked for": Case(
        HEAD + b"Content-Length: 2\r\n\r\nhi!", b"hi", want_persists=False
    ),
}


def read(case: Case, size: int) -> tuple[Answer, Reader]:
    """Feed it in pieces of so many bytes."""
    reader, is_complete = Reader(), False
    for start in range(0, len(case.sent), size):
        is_complete = reader.feed(case.sent[start : start + size]) or is_complete
    assert is_complete is not case.ends
    assert reader.end()
    return reader.answer(), reader


@pytest.mark.parametrize("size", [1, 2, 7, 1000], ids=lambda size: f"{size} at a time")
@pytest.mark.parametrize("name", CASES)
def test_an_answer_is_the_same_in_whichever_pieces_it_comes(name: str, size: int) -> None:
    case = CASES[name]
    answer, reader = read(case, size)
    assert (answer.status, bytes(answer.body)) == (case.want_status, case.want_body)
    assert reader.persists is case.want_persists


def test_headers_are_found_by_small_letters_and_joined_when_they_stand_twice() -> None:
    case = Case(HEAD + b'Warning: 299 - "a"\r\nWARNING:299 - "b" \r\nContent-Length: 0\r\n\r\n')
    answer, _ = read(case, 1000)
    assert answer.headers["warning"] == '299 - "a", 299 - "b"'


BROKEN = {
    "another protocol": (b"SSH-2.0-OpenSSH\r\n\r\n", "'SSH-2.0-OpenSSH' is no status line"),
    "a version to come": (b"HTTP/2 200\r\n\r\n", "no status line"),
    "no number for a status": (b"HTTP/1.1 2x0 OK\r\n\r\n", "no status line"),
    "a change of protocols": (b"HTTP/1.1 101 Switching\r\n\r\n", "101 is none of an answer"),
    "a line that is no header": (HEAD + b"hello\r\n\r\n", "'hello' is no header"),
    "a header that goes on": (HEAD + b"A: b\r\n c: d\r\n\r\n", "' c: d' is no header"),
    "a length below zero": (HEAD + b"Content-Length: -1\r\n\r\n", "'-1' is no number"),
    "two lengths": (HEAD + b"Content-Length: 1\r\ncontent-length: 2\r\n\r\n", "'1, 2' is no"),
    "an encoding that was not asked for": (HEAD + b"Content-Encoding: gzip\r\n\r\n", "'gzip' was"),
    "coding that is not known": (HEAD + b"Transfer-Encoding: gzip\r\n\r\n", "'gzip' is not known"),
    "a chunk without a size": (CHUNKED + b"\r\n", "b'' is no size of a chunk"),
    "a size with a sign": (CHUNKED + b"+5\r\n", "is no size of a chunk"),
    "a chunk that is too long": (CHUNKED + b"2\r\nhello\r\n", "does not end where it should"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_answer_is_told(name: str) -> None:
    pieces, text = BROKEN[name]
    with pytest.raises(BadAnswer, match=text.replace("+", r"\+")):
        Reader().feed(pieces)


def test_a_head_that_does_not_end_is_given_up() -> None:
    reader = Reader()
    with pytest.raises(BadAnswer, match="the head is longer than 65536 B"):
        reader.feed(HEAD + b"x" * response_parser.MAX_HEAD_BYTES)


def test_a_body_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_parser, "MAX_BODY_BYTES", 10)
    reader = Reader()
    assert not reader.feed(HEAD + b"\r\n" + b"x" * 10)
    with pytest.raises(BadAnswer, match="longer than 10 B"):
        reader.feed(b"x")


@pytest.mark.parametrize(
    "pieces",
    [b"", HEAD, HEAD + b"Content-Length: 5\r\n\r\nhell", CHUNKED + b"5\r\nhello\r\n"],
    ids=["nothing", "half a head", "half a body", "without the last chunk"],
)
def test_an_answer_that_was_cut_is_not_complete(pieces: bytes) -> None:
    reader = Reader()
    assert not reader.feed(pieces)
    assert not reader.end()
    assert not reader.persists
